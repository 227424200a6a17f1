"""Makes references.json: renderings by Jinja2 with the settings of transformers' apply_chat_template.

    python3 -m venv venv && venv/bin/pip install jinja2==3.1.6
    venv/bin/python make_references.py [folder with published templates]

Reads templates/*.jinja, conversations.json, variables.json and expressions.txt in its folder. The argument
has the published templates and templates.json.gz; without it their renderings do not change.
"""

import gzip
import hashlib
import json
import pathlib
import sys
from datetime import datetime

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = pathlib.Path(__file__).parent
TOKENS = {
    "llama-3.2-instruct": {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"},
    "qwen2.5": {"eos_token": "<|im_end|>"},
    "qwen3": {"eos_token": "<|im_end|>"},
    "smollm2-instruct": {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"},
}


class Generation(Extension):
    """Stands for transformers' {% generation %}, which prints its body as a call block does."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_support")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _support(self, caller):
        return caller()


class TemplateDict:
    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)


class TemplateNamespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attrs = dict(*args, **kwargs)
        for name in attrs:
            TemplateNamespace._check(name)
        jinja2.utils.Namespace.__init__(self, attrs)

    def __setitem__(self, name, value):
        TemplateNamespace._check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def _check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(name)


def normalized(message):
    """What transformers does to a message before it renders."""
    message = {key: value for key, value in message.items() if value is not None}
    for key in ("reasoning_content", "thinking", "reasoning"):
        if key in message:
            reasoning = message[key]
            return {"thinking": reasoning, **message, "reasoning_content": reasoning}
    return message


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["dict"] = TemplateDict()
    env.globals["namespace"] = TemplateNamespace
    return env


def render(source, conversation):
    """The text, or what failed."""
    variables = {"tools": None, "documents": None, "add_generation_prompt": False}
    variables.update(conversation)
    variables["messages"] = [normalized(m) for m in variables["messages"]]
    for key in ("enable_thinking", "bos_token", "eos_token", "date_string"):
        if variables.get(key, "") is None:
            del variables[key]
    env = environment()
    date = conversation.get("date_string")
    env.globals["strftime_now"] = lambda form: date or datetime.now().strftime(form)
    try:
        template = env.from_string(source)
    except AssertionError:  # a name that Jinja2's own analysis does not know
        return {"fails": "parse", "line": 1}
    except jinja2.exceptions.TemplateSyntaxError as e:
        return {"fails": "parse", "line": e.lineno}
    except SyntaxError:  # of the Python that Jinja2 makes
        return {"fails": "parse", "line": 1}
    try:
        return {"text": template.render(**variables)}
    except jinja2.exceptions.TemplateRuntimeError:
        return {"fails": "render"}
    except jinja2.exceptions.TemplateError as e:
        return {"fails": "raised", "message": str(e)}
    except (
        TypeError, ValueError, ArithmeticError, LookupError, AttributeError, AssertionError, RuntimeError,
    ):
        return {"fails": "render"}


def prepared(folder):
    """Digests of renderings in templates.json.gz that differ once messages are normalized."""
    corpus = json.loads(gzip.open(folder / "templates.json.gz").read())
    sources = {t["id"]: t["text"] for t in corpus["templates"]}
    out = {}
    for case in corpus["cases"]:
        request = corpus["requests"][case["request"]]
        if [normalized(m) for m in request["messages"]] == request["messages"]:
            continue
        text = render(sources[case["template"]], request).get("text")
        if text != case.get("expect"):
            digest = "raises" if text is None else hashlib.sha256(text.encode()).hexdigest()
            out[f"{case['template']}/{case['request']}"] = digest
    return out


def main():
    conversations = json.loads((HERE / "conversations.json").read_text())
    out = {"ours": {}, "expressions": {}, "published": {}, "prepared": {}}
    for path in sorted((HERE / "templates").glob("*.jinja")):
        source = path.read_bytes().decode()
        out["ours"][path.stem] = {name: render(source, c) for name, c in conversations.items()}
    variables = json.loads((HERE / "variables.json").read_text())
    for line in (HERE / "expressions.txt").read_text().split("\n"):
        if line and not line.startswith("##"):
            source = line.replace("⏎", "\n")
            out["expressions"][line] = render(source, variables)
    if len(sys.argv) > 1:
        folder = pathlib.Path(sys.argv[1])
        out["prepared"] = prepared(folder)
        for name, tokens in TOKENS.items():
            source = (folder / f"{name}.chat_template.jinja").read_bytes().decode()
            out["published"][name] = {n: render(source, {**c, **tokens}) for n, c in conversations.items()}
    else:
        before = json.loads((HERE / "references.json").read_text())
        out["published"], out["prepared"] = before["published"], before["prepared"]
    (HERE / "references.json").write_text(json.dumps(out, ensure_ascii=False, indent=1) + "\n")


main()

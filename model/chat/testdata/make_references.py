"""Makes references.json: renderings by Jinja2 with the settings of transformers' apply_chat_template.

    python3 -m venv venv && venv/bin/pip install jinja2==3.1.6
    venv/bin/python make_references.py [folder with published templates]

Reads templates/*.jinja and conversations.json beside it. Without the folder the renderings of published templates are kept as they are.
"""

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
    """Stands for transformers' {% generation %}, which prints its body."""

    tags = {"generation"}

    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


def render(source, conversation):
    """The text, or what failed."""
    variables = {"tools": None, "documents": None, "add_generation_prompt": False}
    variables.update(conversation)
    for key in ("enable_thinking", "bos_token", "eos_token", "date_string"):
        if variables.get(key, "") is None:
            del variables[key]
    env = environment()
    date = conversation.get("date_string")
    env.globals["strftime_now"] = lambda form: date or datetime.now().strftime(form)
    try:
        return {"text": env.from_string(source).render(**variables)}
    except jinja2.exceptions.TemplateSyntaxError as e:
        return {"fails": "parse", "line": e.lineno}
    except SyntaxError:  # of the Python that Jinja2 makes
        return {"fails": "parse", "line": 1}
    except jinja2.exceptions.UndefinedError:
        return {"fails": "render"}
    except jinja2.exceptions.TemplateRuntimeError:
        return {"fails": "render"}
    except jinja2.exceptions.TemplateError as e:
        return {"fails": "raised", "message": str(e)}
    except (TypeError, ValueError, ZeroDivisionError, OverflowError, LookupError, AttributeError):
        return {"fails": "render"}


def main():
    conversations = json.loads((HERE / "conversations.json").read_text())
    out = {"ours": {}, "expressions": {}, "published": {}}
    for path in sorted((HERE / "templates").glob("*.jinja")):
        source = path.read_bytes().decode()
        out["ours"][path.stem] = {name: render(source, c) for name, c in conversations.items()}
    variables = json.loads((HERE / "variables.json").read_text())
    for line in (HERE / "expressions.txt").read_text().split("\n"):
        if line and not line.startswith("##"):
            source = line.replace("⏎", "\n")
            out["expressions"][line] = render(source, variables)
    if len(sys.argv) > 1:
        for name, tokens in TOKENS.items():
            source = (pathlib.Path(sys.argv[1]) / f"{name}.chat_template.jinja").read_bytes().decode()
            out["published"][name] = {n: render(source, {**c, **tokens}) for n, c in conversations.items()}
    else:
        out["published"] = json.loads((HERE / "references.json").read_text())["published"]
    (HERE / "references.json").write_text(json.dumps(out, ensure_ascii=False, indent=1) + "\n")


main()

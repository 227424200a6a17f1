#!/usr/bin/env python3
"""Makes a golden file: what Hugging Face's implementation computes for a model, to hold npukit and
its devices to.

    python3 -m venv venv
    venv/bin/pip install transformers==5.23.0 torch==2.15.0 safetensors==0.8.0
    # writes ./Qwen3-0.6B/golden.safetensors
    venv/bin/python scripts/golden.py ./Qwen3-0.6B --text "The quick brown fox ..."
    npukit verify ./Qwen3-0.6B --golden ./Qwen3-0.6B/golden.safetensors

MODEL is a Hugging Face folder, the name of a model on the hub, or a folder with a GGUF file
(--gguf names it). Ids come from --ids, or from --text or --text-file through the model's
tokenizer; without any of them they are random, from --seed, which needs no tokenizer.

What is written (safetensors): input_ids [T] I64; logits [T, vocab] F32; greedy [N] I64, the best
continuation; the residual stream hidden.embed, hidden.0, ... (after each layer but the last,
whose own output transformers does not give) and hidden.norm (after the final norm), each [T,
hidden] F32. Metadata: source, dtype, and min_top1_gap, the smallest gap between the best two
logits along the greedy continuation: one near 0 says that the choice there is a tie. A vocabulary
of 150,000 takes 0.6 MB of logits for each id.

Everything runs on the CPU. float64, the default, costs 8 bytes a parameter and leaves no doubt
about who rounded; float32 costs half.
"""

import argparse
import os
import sys
from pathlib import Path


def import_torch():
    """Behind the arguments: --help and a wrong argument need none of it, and it takes seconds."""
    global safetensors, torch, transformers
    try:
        import safetensors.torch
        import torch
        import transformers
    except ImportError as missing:
        sys.exit(
            f"golden.py: {missing}\nInstall what it needs: "
            "pip install transformers==5.23.0 torch==2.15.0 safetensors==0.8.0"
        )


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", metavar="MODEL", help="a Hugging Face folder, or the name of a model on the hub")
    p.add_argument("--gguf", metavar="FILE", help="read the weights from this file in the folder MODEL")
    what = p.add_mutually_exclusive_group()
    what.add_argument("--ids", metavar="1,2,3", help="the ids themselves")
    what.add_argument("--text", help="a text, through the model's tokenizer")
    what.add_argument("--text-file", metavar="FILE", help="the same from a file")
    p.add_argument(
        "--positions",
        metavar="N",
        type=int,
        help="keep the first N ids of a text (default 256), or take N random ids (default 96)",
    )
    p.add_argument(
        "--greedy", metavar="N", type=int, default=32, help="continue by N tokens (default 32, 0 for none)"
    )
    p.add_argument(
        "--dtype",
        choices=["float32", "float64"],
        default="float64",
        help="compute in this type (default float64)",
    )
    p.add_argument("--no-hidden", action="store_true", help="leave the residual stream out")
    p.add_argument("--seed", type=int, default=0, help="of random ids (default 0)")
    p.add_argument("--out", metavar="FILE", help="default golden.safetensors in the folder MODEL")
    a = p.parse_args()
    if a.greedy < 0 or (a.positions is not None and a.positions < 2):
        p.error("--greedy takes a number from 0 on, --positions one from 2 on")
    if a.out is None:
        if not Path(a.model).is_dir():
            p.error(f"{a.model} is no folder to write golden.safetensors into: say where with --out")
        a.out = os.path.join(a.model, "golden.safetensors")
    if not Path(a.out).absolute().parent.is_dir():
        p.error(f"--out: there is no folder {Path(a.out).absolute().parent}")
    return a


def load(a):
    """The model in the given dtype. Eager attention is the plain formula; others sum in another order."""
    options = {"dtype": getattr(torch, a.dtype), "attn_implementation": "eager"}
    if a.gguf:
        options["gguf_file"] = a.gguf
    try:
        return transformers.AutoModelForCausalLM.from_pretrained(a.model, **options).eval()
    except (OSError, ValueError) as e:
        sys.exit(f"golden.py: {a.model} cannot be loaded: {e}")


def input_ids(a, config):
    """The ids, a list of int."""
    if a.ids is not None:
        try:
            ids = [int(i) for i in a.ids.split(",")]
        except ValueError:
            sys.exit(f"golden.py: --ids are numbers with commas between them, not {a.ids!r}")
    elif a.text is not None or a.text_file is not None:
        text = a.text if a.text is not None else Path(a.text_file).read_text(encoding="utf-8")
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                a.model, **({"gguf_file": a.gguf} if a.gguf else {})
            )
        except (OSError, ValueError) as e:
            sys.exit(
                f"golden.py: {a.model} has no tokenizer for --text ({e}): give --ids, or neither for random ones"
            )
        ids = tokenizer(text)["input_ids"][: a.positions or 256]
    else:
        generator = torch.Generator().manual_seed(a.seed)
        ids = torch.randint(config.vocab_size, (a.positions or 96,), generator=generator).tolist()
    if len(ids) < 2:
        sys.exit(f"golden.py: {len(ids)} ids are too few: two at least, some hundreds are better")
    if min(ids) < 0 or max(ids) >= config.vocab_size:
        sys.exit(f"golden.py: ids must be from 0 to {config.vocab_size - 1}, the model's vocabulary")
    room = config.max_position_embeddings - a.greedy
    if len(ids) > room:
        sys.exit(
            f"golden.py: {len(ids)} ids and {a.greedy} tokens are more than the model's "
            f"{config.max_position_embeddings} positions"
        )
    return ids


def continuation(model, ids, n):
    """The n greedy tokens after ids, each from a full pass, and the smallest gap of the best two logits."""
    tokens, gap, past = [], float("inf"), None
    step = torch.tensor([ids])
    for _ in range(n):
        out = model(step, past_key_values=past, use_cache=True, logits_to_keep=1)
        past = out.past_key_values
        best = out.logits[0, -1].topk(2)
        gap = min(gap, (best.values[0] - best.values[1]).item())
        tokens.append(best.indices[0].item())
        step = torch.tensor([[tokens[-1]]])
    return tokens, gap


def main():
    a = arguments()
    import_torch()
    with torch.inference_mode():
        write(a)


def write(a):
    """Computes everything and writes the file."""
    transformers.logging.set_verbosity_error()
    model = load(a)
    ids = input_ids(a, model.config)
    out = model(torch.tensor([ids]), output_hidden_states=not a.no_hidden, use_cache=False)
    logits = out.logits[0].float()
    if not torch.isfinite(logits).all():
        sys.exit("golden.py: the reference's own logits are not finite; is the checkpoint damaged?")

    arrays = {"input_ids": torch.tensor(ids, dtype=torch.int64), "logits": logits}
    if not a.no_hidden:
        # hidden_states are the embedding, then each layer's output; the last one has the final norm in it.
        first, *between, last = (h[0].float() for h in out.hidden_states)
        arrays["hidden.embed"], arrays["hidden.norm"] = first, last
        for layer, h in enumerate(between):
            arrays[f"hidden.{layer}"] = h
    metadata = {
        "source": f"transformers {transformers.__version__}, torch {torch.__version__}, "
        f"{a.dtype} on the stored weights "
        "(RMSNorm and RoPE angles in float32, as transformers does)",
        "dtype": a.dtype,
    }
    if a.greedy:
        tokens, gap = continuation(model, ids, a.greedy)
        arrays["greedy"] = torch.tensor(tokens, dtype=torch.int64)
        metadata["min_top1_gap"] = f"{gap:.4g}"
    safetensors.torch.save_file(
        {name: t.contiguous() for name, t in arrays.items()}, a.out, metadata=metadata
    )
    print(f"{a.out}: {len(ids)} ids, {a.greedy} greedy tokens, {len(arrays)} arrays, {metadata['source']}")


if __name__ == "__main__":
    main()

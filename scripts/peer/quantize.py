#!/usr/bin/env python3
"""Quantises a GGUF with llama.cpp's own quantiser.

    quantize.py MODEL.gguf OUT.gguf Q4_K_M

Types are llama.cpp's: Q8_0, Q4_0, Q4_1, Q4_K_M, Q6_K and others. Matrices whose width does not
fit a type get another one, as llama.cpp chooses.
"""

import os
import sys

import llama_cpp as ll


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    source, out, name = sys.argv[1:]
    kind = getattr(ll, f"LLAMA_FTYPE_MOSTLY_{name}", None)
    if kind is None:
        sys.exit(f"quantize: llama.cpp has no type {name}")
    silent = ll.llama_log_callback(lambda level, text, data: None)  # must outlive its use
    ll.llama_log_set(silent, None)
    params = ll.llama_model_quantize_default_params()
    params.ftype = kind
    params.nthread = os.cpu_count()
    part = f"{out}.part"
    if ll.llama_model_quantize(source.encode(), part.encode(), params) != 0:
        sys.exit(f"quantize: llama.cpp cannot quantise {source} to {name}")
    os.replace(part, out)
    print(out)


if __name__ == "__main__":
    main()

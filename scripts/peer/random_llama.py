#!/usr/bin/env python3
"""Writes a model with the shape of Llama-3.2-1B and random BF16 weights twice: OUT/hf, a Hugging
Face folder, and OUT/bf16.gguf.

    random_llama.py OUT

Speed depends on shapes and types, not on what the weights say: 2.5 GB of random numbers are as
slow as trained ones, and are there without asking anybody. There is no tokenizer. RoPE is
unscaled, since a scaled one would be a tensor in one file and settings in the other.
"""

import os
import sys

import gguf
import numpy as np

from convert import LAYER, config, finish_gguf, write_json, write_safetensors

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB = 16, 2048, 32, 8, 64, 8192, 128256

# Rows and columns of a layer's matrices, by GGUF's names.
SHAPES = {
    "attn_q": (HEADS * HEAD_DIM, HIDDEN),
    "attn_k": (KV_HEADS * HEAD_DIM, HIDDEN),
    "attn_v": (KV_HEADS * HEAD_DIM, HIDDEN),
    "attn_output": (HIDDEN, HEADS * HEAD_DIM),
    "ffn_gate": (FFN, HIDDEN),
    "ffn_up": (FFN, HIDDEN),
    "ffn_down": (HIDDEN, FFN),
}

META = {
    "llama.vocab_size": VOCAB,
    "llama.block_count": LAYERS,
    "llama.context_length": 131072,
    "llama.embedding_length": HIDDEN,
    "llama.feed_forward_length": FFN,
    "llama.attention.head_count": HEADS,
    "llama.attention.head_count_kv": KV_HEADS,
    "llama.attention.key_length": HEAD_DIM,
    "llama.attention.value_length": HEAD_DIM,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.dimension_count": HEAD_DIM,
    "llama.rope.freq_base": 500000.0,
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out = sys.argv[1]
    folder = os.path.join(out, "hf")
    os.makedirs(folder, exist_ok=True)
    weights = dict(random_weights())
    write_gguf(os.path.join(out, "bf16.gguf"), weights)
    write_json(folder, "config.json", config(META, weights))
    # Last, so that a folder with weights is a whole one.
    write_safetensors(os.path.join(folder, "model.safetensors"), weights, META)
    print(out)


def random_weights():
    """The tensors by name, as the upper halves of float32: of about the size that keeps activations in range."""
    rng = np.random.default_rng(1)

    def matrix(rows, columns):
        values = rng.standard_normal((rows, columns), dtype=np.float32) / np.float32(columns**0.5)
        return (values.view(np.uint32) >> 16).astype(np.uint16)

    def ones():
        return (np.ones(HIDDEN, np.float32).view(np.uint32) >> 16).astype(np.uint16)

    yield "token_embd.weight", matrix(VOCAB, HIDDEN)
    for layer in range(LAYERS):
        for part in LAYER:
            yield f"blk.{layer}.{part}.weight", matrix(*SHAPES[part]) if part in SHAPES else ones()
    yield "output_norm.weight", ones()


def write_gguf(path, weights):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    writer.add_tokenizer_model("no_vocab")
    for key, value in META.items():
        if isinstance(value, float):
            writer.add_float32(key, value)
        else:
            writer.add_uint32(key, value)
    finish_gguf(writer, weights)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes a GGUF model of the llama architecture in BF16 twice, so that two programs can be compared
on the same weights.

    convert.py MODEL.gguf OUT

makes OUT/hf, a Hugging Face folder, and OUT/bf16.gguf. Every matrix is dequantised to float32 and
rounded once to BF16 (to nearest, ties to even); both files hold those same values. Norm weights
are float32 in the GGUF, as llama.cpp wants them, and BF16 in the folder, as published; they must
be exact in BF16, or this stops.

Rows of q and k are ordered differently: a GGUF of this architecture pairs element 2i with 2i+1
for RoPE, Hugging Face pairs i with i + headDim/2. The folder gets the second order.
"""

import json
import os
import struct
import sys

import gguf
import numpy as np

BF16 = gguf.GGMLQuantizationType.BF16

# Names of a layer's tensors: GGUF, after "blk.N.", to Hugging Face, after "model.layers.N.".
LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}

# Kinds of tokens in tokenizer.ggml.token_type that the Hugging Face format lists apart from the vocabulary.
CONTROL, USER_DEFINED = 3, 4


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    source, out = sys.argv[1:]
    reader = gguf.GGUFReader(source)
    meta = {name: field.contents() for name, field in reader.fields.items()}
    if meta["general.architecture"] != "llama":
        sys.exit(
            f"convert: {source} is of architecture {meta['general.architecture']}; only llama is converted"
        )
    weights = {t.name: to_bf16(t) for t in reader.tensors}
    folder = os.path.join(out, "hf")
    os.makedirs(folder, exist_ok=True)
    write_safetensors(os.path.join(folder, "model.safetensors"), weights, meta)
    write_json(folder, "config.json", config(meta, weights))
    write_json(folder, "generation_config.json", special_ids(meta))
    if meta.get("tokenizer.ggml.pre") == "smollm":
        write_json(folder, "tokenizer.json", tokenizer(meta))
        write_json(folder, "tokenizer_config.json", tokenizer_config(meta))
    else:
        print(
            f"convert: no tokenizer.json: the pre-tokeniser {meta.get('tokenizer.ggml.pre')} is not known here",
            file=sys.stderr,
        )
    write_gguf(os.path.join(out, "bf16.gguf"), reader, weights)
    print(out)


def to_bf16(tensor):
    """The tensor's values as the upper halves of float32, uint16 [rows, columns] or [n]."""
    values = np.ascontiguousarray(gguf.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
    bits = values.view(np.uint32)
    half = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    if values.ndim == 1 and not np.array_equal(to_float(half), values):
        sys.exit(f"convert: {tensor.name} is not exact in BF16: the two files would differ")
    return half


def to_float(half):
    return (half.astype(np.uint32) << 16).view(np.float32)


def half_split(rows, heads):
    """Puts rows [heads x headDim, in] from the order of pairs (2i, 2i+1) into that of (i, i + headDim/2)."""
    n, k = rows.shape
    return rows.reshape(heads, n // heads // 2, 2, k).swapaxes(1, 2).reshape(n, k)


def write_safetensors(path, weights, meta):
    """The container: 8 bytes of header length, a JSON header of types, shapes and offsets, the data."""
    heads = meta["llama.attention.head_count"]
    kv_heads = meta.get("llama.attention.head_count_kv", heads)
    header = {"__metadata__": {"format": "pt"}}
    data = []
    end = 0
    for name, w in weights.items():
        if name.endswith("attn_q.weight"):
            w = half_split(w, heads)
        elif name.endswith("attn_k.weight"):
            w = half_split(w, kv_heads)
        header[hf_name(name)] = {
            "dtype": "BF16",
            "shape": list(w.shape),
            "data_offsets": [end, end + w.nbytes],
        }
        data.append(w.tobytes())
        end += w.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # so that the data is aligned
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.writelines(data)


def hf_name(name):
    stem = name.removesuffix(".weight")
    if stem in TOP:
        return TOP[stem] + ".weight"
    _, layer, part = stem.split(".")
    return f"model.layers.{layer}.{LAYER[part]}.weight"


def config(meta, weights):
    heads = meta["llama.attention.head_count"]
    hidden = meta["llama.embedding_length"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "vocab_size": weights["token_embd.weight"].shape[0],
        "hidden_size": hidden,
        "intermediate_size": meta["llama.feed_forward_length"],
        "num_hidden_layers": meta["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": meta.get("llama.attention.head_count_kv", heads),
        "head_dim": meta.get("llama.attention.key_length", hidden // heads),
        "max_position_embeddings": meta["llama.context_length"],
        # Stored as a float32: the shortest decimal that gives the same float32 is what the author wrote.
        "rms_norm_eps": float(str(np.float32(meta["llama.attention.layer_norm_rms_epsilon"]))),
        "rope_theta": meta["llama.rope.freq_base"],
        "rope_scaling": None,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": "output.weight" not in weights,
        **special_ids(meta),
    }


def special_ids(meta):
    names = {"bos": "bos_token_id", "eos": "eos_token_id", "padding": "pad_token_id"}
    return {
        hf: meta[f"tokenizer.ggml.{key}_token_id"]
        for key, hf in names.items()
        if f"tokenizer.ggml.{key}_token_id" in meta
    }


def tokenizer(meta):
    """A byte-level BPE that takes every digit alone, as SmolLM2 does."""
    tokens = meta["tokenizer.ggml.tokens"]
    added = [
        {
            "id": i,
            "content": tokens[i],
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kind == CONTROL,
        }
        for i, kind in enumerate(meta["tokenizer.ggml.token_type"])
        if kind in (CONTROL, USER_DEFINED)
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "post_processor": None,
        "decoder": {**byte_level, "add_prefix_space": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {t: i for i, t in enumerate(tokens)},
            "merges": meta["tokenizer.ggml.merges"],
        },
    }


def tokenizer_config(meta):
    tokens = meta["tokenizer.ggml.tokens"]
    names = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}
    out = {
        hf: tokens[meta[f"tokenizer.ggml.{key}_token_id"]]
        for key, hf in names.items()
        if f"tokenizer.ggml.{key}_token_id" in meta
    }
    out |= {
        "tokenizer_class": "GPT2Tokenizer",
        "clean_up_tokenization_spaces": False,
        "add_prefix_space": False,
    }
    if "tokenizer.chat_template" in meta:
        out["chat_template"] = meta["tokenizer.chat_template"]
    return out


def write_json(folder, name, value):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
        json.dump(value, f, indent=2, ensure_ascii=False)
        f.write("\n")


def write_gguf(path, reader, weights):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    for name, field in reader.fields.items():
        # What the writer writes itself, and what was true of the quantised file only.
        if name.startswith("GGUF.") or name in (
            "general.architecture",
            "general.file_type",
            "general.quantization_version",
        ):
            continue
        writer.add_key_value(
            name, field.contents(), field.types[0], field.types[-1] if len(field.types) > 1 else None
        )
    finish_gguf(writer, weights)


def finish_gguf(writer, weights):
    """Adds the tensors, vectors as float32 and matrices as BF16, and writes the file."""
    for name, w in weights.items():
        if w.ndim == 1:
            writer.add_tensor(name, to_float(w))
        else:
            writer.add_tensor(name, w.view(np.uint8), raw_dtype=BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()

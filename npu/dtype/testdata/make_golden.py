# Writes golden.json: blocks of every quantized type and their FP32 values according to the Python
# package gguf. Run in this folder: pip install gguf==0.19.0 && python make_golden.py
#
# Block bytes are random, so every bit of every field matters. The half-precision scales are replaced
# by finite ones: normal, subnormal, zero, negative and the largest. Values are stored as little-endian
# FP32 bit patterns, gzip'd base64.
import base64, gzip, json
import numpy as np
from gguf import GGMLQuantizationType as T, GGML_QUANT_SIZES, quants

HALFS = {
    "Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
}
SPECIAL = [0x0001, 0x8001, 0x03FF, 0x0000, 0x8000, 0x0400, 0x7BFF, 0xFBFF]

rng = np.random.default_rng(20)
pack = lambda a: base64.b64encode(gzip.compress(np.ascontiguousarray(a).tobytes(), 9, mtime=0)).decode()
out = {}
for name, at in HALFS.items():
    t = T[name]
    elems, size = GGML_QUANT_SIZES[t]
    n = 512 // elems * 2 + len(SPECIAL)
    b = rng.integers(0, 256, (n, size), dtype=np.uint8)
    for i in range(n):
        for k, o in enumerate(at):
            # Scales of weights are small: 2^-14 to 2^1, either sign. The first blocks use the special
            # values in turn.
            h = np.float16(rng.uniform(-1, 1) * 2.0 ** rng.integers(-13, 2)).view(np.uint16)
            if i < len(SPECIAL):
                h = np.uint16(SPECIAL[(i + 3 * k) % len(SPECIAL)])
            b[i, o : o + 2] = np.array([h], "<u2").view(np.uint8)
    out[name] = {"blocks": pack(b), "values": pack(quants.dequantize(b, t).astype("<f4"))}
with open("golden.json", "w") as f:
    json.dump(out, f, indent=1)
    f.write("\n")

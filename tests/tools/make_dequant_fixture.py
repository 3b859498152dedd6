#!/usr/bin/env python3
"""Writes tests/unit/tensor/dequant_fixture.bin: random blocks of every element type and the floats that gguf-py makes of them.

Needs numpy and gguf (pip install numpy gguf). The file is a run of records, all little-endian:
u32 type id, u32 bytes, u32 weights, the packed bytes, the weights as float32. Scales are finite halves, among them zero,
subnormal and the greatest ones.
"""
import pathlib
import sys

import numpy as np
from gguf import GGMLQuantizationType as T
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize

N_BLOCKS = {32: 12, 256: 6, 1: 96}
# Offsets of the half-float fields of a block.
HALVES = {
    T.F16: [0], T.BF16: [], T.F32: [], T.MXFP4: [],
    T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.IQ4_NL: [0], T.IQ4_XS: [0],
    T.Q2_K: [80, 82], T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208],
}
ODD_HALVES = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x3C00]


def blocks_of(rng, t):
    weights, size = GGML_QUANT_SIZES[t]
    n = N_BLOCKS[weights]
    raw = rng.integers(0, 256, (n, size), dtype=np.uint8)
    for k, at in enumerate(HALVES[t]):
        half = rng.integers(0, 0x7C00, n).astype("<u2") | (rng.integers(0, 2, n) << 15).astype("<u2")
        half[: min(n, len(ODD_HALVES))] = np.roll(ODD_HALVES, 3 * k)[:n]
        raw[:, at : at + 2] = half.view(np.uint8).reshape(n, 2)
    if t == T.MXFP4:
        raw[:4, 0] = [0, 1, 2, 254]  # 255 is NaN by the format; gguf-py and ggml give 2^127
        raw[4, 0] = 255
    if t in (T.F32, T.BF16):  # any finite value
        top = raw.view("<u4" if t == T.F32 else "<u2")
        infinite = (top & (0x7F800000 if t == T.F32 else 0x7F80)) == (0x7F800000 if t == T.F32 else 0x7F80)
        top[infinite] ^= 0x40000000 if t == T.F32 else 0x4000
    return raw


def main():
    out = pathlib.Path(__file__).parent.parent / "unit/tensor/dequant_fixture.bin"
    rng = np.random.default_rng(20240917)
    with open(out, "wb") as f:
        for t in HALVES:
            raw = blocks_of(rng, t).reshape(-1)
            values = np.ascontiguousarray(dequantize(raw, t), dtype="<f4").reshape(-1)
            assert not np.isnan(values).any(), t
            f.write(np.array([t.value, raw.size, values.size], "<u4").tobytes() + raw.tobytes() + values.tobytes())
    print(out, out.stat().st_size, "bytes", file=sys.stderr)


if __name__ == "__main__":
    main()

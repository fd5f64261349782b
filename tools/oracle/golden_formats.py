#!/usr/bin/env python3
"""Writes testdata/golden: blocks of every GGUF format with the f32 bits they decode to, and encoder cases.

    python tools/oracle/golden_formats.py [--models models]        # needs numpy, gguf 0.19, libgguf 0.2.2

Oracles, compared with each other here before anything is written:
  * the numpy decoders of PyPI `gguf` and the C row decoders of PyPI `libgguf` for every quantised format that they
    know; both follow ggml, neither fuses a product and a sum;
  * numpy alone for plain numbers;
  * the functions `q8_1_*` and `q8_k_*` below for the two activation formats, which neither package encodes or decodes.

Blocks: random bytes; cuts from the real models (rows of F32 or F16 weights requantised by libgguf for formats that
no model ships); and real blocks whose scale fields are zero, subnormal, the largest, negative, infinite, NaN.

Files (little-endian). NAME.bin: u32 block_elems, block_bytes, n_blocks; the blocks; the f32 bits.
NAME.enc.bin: the same header; the f32 inputs; the encoded blocks.
"""

import argparse
from pathlib import Path

import gguf
import libgguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import quants

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "testdata/golden"
BYTES_MAX = 100_000
rng = np.random.default_rng(20240607)

F16_SPECIAL = [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x83FF, 0x0400, 0x3C00, 0xBC00,
               0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0xFE01]  # fmt: skip
F32_SPECIAL = [0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x00800000, 0x3F800000, 0xBF800000,
               0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001]  # fmt: skip

# Offsets of the half-float scales in a block. IQ1_M scatters its scale, MXFP4 and NVFP4 have bytes, Q8_K an f32.
F16_FIELDS = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q8_1": [0, 2],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
    "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0], "IQ1_S": [0],
    "IQ4_NL": [0], "IQ4_XS": [0], "TQ1_0": [52], "TQ2_0": [64],
}  # fmt: skip

# The formats of the crate with (block_elems, block_bytes) from ggml-common.h; `gguf` itself says 40 for Q8_1.
SIZES = {t.name: gguf.GGML_QUANT_SIZES[t] for t in Type if t.name != "Q1_0"} | {"Q8_1": (32, 36)}


# Q8_1 and Q8_K, written from the definition: Q8_1 is f16 d, f16 s, 32 i8; Q8_K is f32 d, 256 i8, 16 i16.

def q8_1_encode(x: np.ndarray) -> np.ndarray:
    """d = max|x| / 127, q = x/d rounded half away from zero, s = d·Σq with the unrounded d."""
    x = x.reshape(-1, 32)
    d = (np.abs(x).max(axis=1, keepdims=True) / np.float32(127)).astype(np.float32)
    inverse = np.divide(np.float32(1), d, out=np.zeros_like(d), where=d != 0)
    scaled = (x * inverse).astype(np.float32).astype(np.float64)
    q = (np.sign(scaled) * np.floor(np.abs(scaled) + 0.5)).astype(np.int8)
    s = q.sum(axis=1, keepdims=True, dtype=np.int32).astype(np.float32) * d
    return np.concatenate([d.astype("<f2").view(np.uint8), s.astype("<f2").view(np.uint8), q.view(np.uint8)], axis=1)


def q8_1_decode(blocks: np.ndarray) -> np.ndarray:
    d = np.ascontiguousarray(blocks[:, :2]).view("<f2").astype(np.float32)
    return d * np.ascontiguousarray(blocks[:, 4:]).view(np.int8).astype(np.float32)


def q8_k_encode(x: np.ndarray) -> np.ndarray:
    """iscale = -127 / (the value of largest magnitude), q = iscale·x to nearest even, d = 1 / iscale."""
    x = x.reshape(-1, 256)
    farthest = np.take_along_axis(x, np.abs(x).argmax(axis=1)[:, None], axis=1)
    nonzero = farthest != 0
    iscale = np.divide(np.float32(-127), farthest, out=np.zeros_like(farthest), where=nonzero)
    d = np.divide(np.float32(1), iscale, out=np.zeros_like(iscale), where=nonzero)
    q = np.minimum(np.rint((iscale * x).astype(np.float32)), 127).astype(np.int8)
    sums = q.reshape(-1, 16, 16).sum(axis=2, dtype=np.int16)
    return np.concatenate([d.view(np.uint8), q.view(np.uint8), sums.astype("<i2").view(np.uint8)], axis=1)


def q8_k_decode(blocks: np.ndarray) -> np.ndarray:
    d = np.ascontiguousarray(blocks[:, :4]).view("<f4")
    return d * np.ascontiguousarray(blocks[:, 4:260]).view(np.int8).astype(np.float32)


PLAIN = {"F32": "<f4", "F16": "<f2", "F64": "<f8", "I8": "<i1", "I16": "<i2", "I32": "<i4", "I64": "<i8"}


def decode(name: str, blocks: np.ndarray) -> np.ndarray:
    """The values of `blocks` ([n, block_bytes] u8) as [n, block_elems] f32, by all oracles that know the format."""
    if name in PLAIN:
        return blocks.view(PLAIN[name]).astype(np.float32)
    if name == "BF16":
        return (blocks.view("<u2").astype(np.uint32) << 16).view(np.float32)
    if name == "Q8_1":
        return q8_1_decode(blocks)
    if name == "Q8_K":
        return q8_k_decode(blocks)
    by_numpy = quants.dequantize(blocks, Type[name])
    by_c = libgguf.dequantize_rows(blocks, Type[name])
    assert_same(name, by_numpy, by_c)
    return by_numpy


def assert_same(name: str, a: np.ndarray, b: np.ndarray) -> None:
    same = (a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))
    assert a.shape == b.shape and same.all(), f"{name}: the oracles differ in {(~same).sum()} of {same.size} values"


def real_tensors(models: Path) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Blocks by type as they lie in the real models, and rows of 256 real F32 weights."""
    by_type: dict[str, list[np.ndarray]] = {}
    values = []
    for path in sorted(models.glob("*.gguf")):
        for tensor in gguf.GGUFReader(path).tensors:
            name, n = tensor.tensor_type.name, SIZES[tensor.tensor_type.name][1]
            raw = np.ascontiguousarray(tensor.data).view(np.uint8).reshape(-1, n)
            by_type.setdefault(name, []).append(raw[rng.integers(0, len(raw), 8)])
            if name == "F16" and tensor.data.size % 256 == 0:
                values.append(tensor.data.reshape(-1, 256)[rng.integers(0, tensor.data.size // 256, 4)])
    if not values:
        raise SystemExit(f"{models} lacks the f16 model (tools/models/fetch.py fetches the models)")
    blocks = {name: np.concatenate(parts) for name, parts in by_type.items()}
    return blocks, np.concatenate(values).astype(np.float32)


def real_blocks(name: str, shipped: dict[str, np.ndarray], values: np.ndarray, n: int) -> np.ndarray:
    if name in shipped:
        return shipped[name][rng.integers(0, len(shipped[name]), n)]
    rows = values[rng.integers(0, len(values), n)]
    if name == "Q8_1":
        return q8_1_encode(rows)[:n]
    if name == "Q8_K":
        return q8_k_encode(rows)[:n]
    if name in PLAIN or name == "BF16":
        kind = PLAIN.get(name)
        scaled = (rows * 1000).astype(kind) if kind else quants.quantize(rows, Type.BF16)
        return np.ascontiguousarray(scaled).view(np.uint8).reshape(-1, SIZES[name][1])[:n]
    return libgguf.quantize_rows(rows, Type[name]).reshape(-1, SIZES[name][1])[:n]


def with_scales(name: str, real: np.ndarray) -> np.ndarray:
    """Real blocks with each special scale in each scale field."""
    out = []

    def put(offset: int, raw: bytes) -> None:
        block = real[len(out) % len(real)].copy()
        block[offset : offset + len(raw)] = np.frombuffer(raw, np.uint8)
        out.append(block)

    for offset in F16_FIELDS.get(name, []):
        for bits in F16_SPECIAL:
            put(offset, bits.to_bytes(2, "little"))
    if name == "Q8_K":
        for bits in F32_SPECIAL:
            put(0, bits.to_bytes(4, "little"))
    if name == "MXFP4":
        for byte in [0, 1, 2, 3, 126, 127, 128, 253, 254, 255]:
            put(0, bytes([byte]))
    if name == "NVFP4":
        for byte in [0, 1, 7, 8, 0x38, 0x77, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF]:
            put(len(out) % 4, bytes([byte]))
    if name == "IQ1_M":
        for bits in F16_SPECIAL:
            block = real[len(out) % len(real)].copy()
            words = block[48:56].view("<u2")
            for k in range(4):
                words[k] = words[k] & 0x0FFF | (bits >> (4 * k) & 15) << 12
            out.append(block)
    return np.array(out, np.uint8).reshape(-1, SIZES[name][1])


def plain_specials(name: str) -> np.ndarray:
    kind = np.dtype(PLAIN.get(name, "<u2"))
    if name == "F32":
        cases = np.array(F32_SPECIAL, "<u4")
    elif name == "F16":
        cases = np.array(F16_SPECIAL, "<u2")
    elif name == "BF16":
        cases = np.array(F32_SPECIAL, "<u4") >> 16
        cases = cases.astype("<u2")
    elif name == "F64":
        # Around f32's largest, smallest and a tie between two neighbours.
        cases = np.array([0.0, -0.0, 1e300, -1e300, 3.4028235677973366e38, 3.4028235677973362e38, 1e-46, 7e-46,
                          1 + 2.0**-24, 1 + 3 * 2.0**-24, 5e-324, np.inf, -np.inf, np.nan], "<f8")  # fmt: skip
    else:
        info = np.iinfo(kind)
        ties = [2**24 + 1, 2**24 + 3, 2**40 + 2**16, 2**40 + 3 * 2**16, -(2**24) - 1]
        cases = np.array([info.min, info.max, 0, 1, -1, *[t for t in ties if info.min <= t <= info.max]], kind)
    return cases.view(np.uint8).reshape(-1, SIZES[name][1])


def golden(name: str, shipped: dict[str, np.ndarray], values: np.ndarray) -> int:
    n_elems, n_bytes = SIZES[name]
    n_random, n_real = (400, 100) if n_elems == 1 else (12, 20) if n_elems == 256 else (64, 64)
    random = rng.integers(0, 256, (n_random, n_bytes), dtype=np.uint8)
    real = real_blocks(name, shipped, values, n_real)
    special = plain_specials(name) if n_elems == 1 else with_scales(name, real)
    blocks = np.ascontiguousarray(np.concatenate([random, real, special]))
    assert len(blocks) >= 24 and len(special) >= 5, name
    with np.errstate(all="ignore"):
        expected = decode(name, blocks)
    write(f"{name}.bin", n_elems, n_bytes, len(blocks), blocks, expected.astype("<f4"))
    return expected.size


def write(file: str, n_elems: int, n_bytes: int, n_blocks: int, *parts: np.ndarray) -> None:
    raw = np.array([n_elems, n_bytes, n_blocks], "<u4").tobytes() + b"".join(p.tobytes() for p in parts)
    assert len(raw) <= BYTES_MAX, f"{file}: {len(raw)} bytes"
    (OUT / file).write_bytes(raw)


def encoder_inputs(values: np.ndarray) -> np.ndarray:
    """Real rows; rows of zeros, of ties, with two values of equal magnitude, tiny and large; [n, 256] f32."""
    rows = [values[rng.integers(0, len(values), 10)]]
    rows.append(np.zeros((1, 256)))
    rows.append(np.tile(np.arange(-127, 129)[None] / 2, (1, 1)))
    ties = rng.integers(-254, 255, (4, 256)) / 2
    ties[:, ::32] = 127  # the scale is 1, so halves are ties
    rows.append(ties)
    ties = -ties
    ties[:, 1::32] = 127  # equal magnitudes of both signs: the first one counts
    rows.append(ties)
    rows.append(rng.normal(size=(3, 256)) * np.array([[1e-7], [1e-3], [1e4]]))
    return np.concatenate(rows).astype(np.float32)


def encode(name: str, x: np.ndarray) -> np.ndarray:
    if name == "Q8_1":
        return q8_1_encode(x)
    if name == "Q8_K":
        return q8_k_encode(x)
    by_numpy = np.ascontiguousarray(quants.quantize(x, Type[name])).view(np.uint8)
    by_c = np.ascontiguousarray(libgguf.quantize_rows(x, Type[name])).view(np.uint8)
    assert (by_numpy == by_c).all(), f"{name}: the encoders differ"
    return by_numpy


def golden_encoder(name: str, values: np.ndarray) -> None:
    n_elems, n_bytes = SIZES[name]
    x = encoder_inputs(values)
    if n_elems == 1:
        cut = np.array(F32_SPECIAL[:12], "<u4").view(np.float32)  # NaN payloads are the encoder's own
        halves = (np.arange(0x7C00, dtype=np.uint16)[:: 0x7C00 // 97]).view(np.float16).astype(np.float32)
        between = halves + np.spacing(halves.astype(np.float16)).astype(np.float32) / 2  # ties of F16
        x = np.concatenate([cut, halves, between, x.ravel()[:3000], np.float32([65504, 65519.9, 65520, 7e4])])
    with np.errstate(all="ignore"):
        blocks = encode(name, np.ascontiguousarray(x, np.float32))
    write(f"{name}.enc.bin", n_elems, n_bytes, x.size // n_elems, x.astype("<f4"), blocks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, default=ROOT / "models", help="folder with the real GGUF files")
    shipped, values = real_tensors(parser.parse_args().models)
    OUT.mkdir(parents=True, exist_ok=True)
    n_values = sum(golden(name, shipped, values) for name in SIZES)
    # The formats whose encoders leave no choice; golden_encoders.py measures the others.
    for name in ["F32", "F16", "BF16", "Q4_0", "Q8_0", "Q8_1", "Q8_K",
                 "Q4_1", "Q5_0", "Q5_1", "TQ1_0", "TQ2_0", "MXFP4"]:  # fmt: skip
        golden_encoder(name, values)
    print(f"{len(SIZES)} formats, {n_values} values")


if __name__ == "__main__":
    main()

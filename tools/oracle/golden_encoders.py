#!/usr/bin/env python3
"""Writes testdata/golden/encoders: rows of values, and the error that libgguf's encoders leave on them.

    python tools/oracle/golden_encoders.py [--models models]        # needs numpy, gguf 0.19, libgguf 0.2.2

rows.bin: f32, little-endian, 256 a row. errors.tsv: a line of the sets' names, a line of their numbers of rows in the
order of rows.bin, then a line for each format with the root mean square of value − decode(encode(value)) over each set.
libgguf follows ggml; it is asked without an importance matrix.
"""

import argparse
from pathlib import Path

import gguf
import libgguf
import numpy as np
from gguf import GGMLQuantizationType as Type

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "testdata/golden/encoders"
FORMATS = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS",
           "TQ1_0", "TQ2_0", "MXFP4", "NVFP4"]  # fmt: skip
ROWS_BYTES_MAX = 200_000


def real_rows(models: Path, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """A few rows of 256 weights from matrices of every kind, dequantised, of each model."""
    sets = {}
    for path in sorted(models.glob("*.gguf")):
        tensors = [t for t in gguf.GGUFReader(path).tensors if len(t.shape) == 2 and min(t.shape) >= 256]
        kinds = sorted({t.name.split(".")[-2] for t in tensors})
        rows = []
        for kind in kinds:
            of_kind = [t for t in tensors if t.name.split(".")[-2] == kind]
            tensor = of_kind[rng.integers(0, len(of_kind))]
            picked = rng.integers(0, tensor.data.shape[0], 2)
            values = gguf.quants.dequantize(np.ascontiguousarray(tensor.data[picked]), tensor.tensor_type)
            blocks = values.ravel()[: values.size // 256 * 256].reshape(-1, 256)
            rows.append(blocks[rng.integers(0, len(blocks), 2)])
        sets[path.stem] = np.concatenate(rows)
    if not sets:
        raise SystemExit(f"{models} has no models (tools/models/fetch.py fetches them)")
    return sets


def made_rows(rng: np.random.Generator) -> dict[str, np.ndarray]:
    gaussian = rng.normal(size=(24, 256)) * 0.02
    outliers = rng.normal(size=(12, 256)) * 0.02
    outliers[np.arange(12)[:, None], rng.integers(0, 256, (12, 3))] *= 30
    spike = np.zeros((3, 256))
    spike[[0, 1, 2], [0, 100, 255]] = [0.5, -0.25, 3.0]
    return {
        "gaussian": gaussian,
        "laplace": rng.laplace(size=(16, 256)) * 0.02,
        "uniform": rng.uniform(-1, 1, (8, 256)),
        "outliers": outliers,
        "negative": -np.abs(rng.normal(size=(8, 256))) * 0.02 - 0.01,
        "positive": rng.uniform(0.01, 0.05, (4, 256)),
        "large": rng.normal(size=(4, 256)) * 300,
        "small": rng.normal(size=(4, 256)) * 1e-4,
        "constant": np.repeat([[0.7], [-0.3], [1.0]], 256, axis=1),
        "spike": spike,
        "zeros": np.zeros((1, 256)),
    }


def error(rows: np.ndarray, name: str) -> float:
    blocks = libgguf.quantize_rows(rows, Type[name])
    n_bytes = gguf.GGML_QUANT_SIZES[Type[name]][1]
    decoded = libgguf.dequantize_rows(np.ascontiguousarray(blocks).reshape(-1, n_bytes), Type[name])
    rest = rows.astype(np.float64).ravel() - decoded.astype(np.float64).ravel()
    return float(np.sqrt(np.mean(rest * rest)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, default=ROOT / "models", help="folder with the real GGUF files")
    rng = np.random.default_rng(20240611)
    sets = real_rows(parser.parse_args().models, rng) | made_rows(rng)
    sets = {name: np.ascontiguousarray(rows, np.float32) for name, rows in sets.items()}
    raw = b"".join(rows.astype("<f4").tobytes() for rows in sets.values())
    assert len(raw) <= ROWS_BYTES_MAX, f"{len(raw)} bytes"
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "rows.bin").write_bytes(raw)
    table = [["set", *sets], ["rows", *(len(rows) for rows in sets.values())]]
    table += [[name, *(repr(error(rows, name)) for rows in sets.values())] for name in FORMATS]
    (OUT / "errors.tsv").write_text("".join("\t".join(map(str, line)) + "\n" for line in table))
    print(f"{len(sets)} sets, {len(raw)} bytes of rows, {len(FORMATS)} formats")


if __name__ == "__main__":
    main()

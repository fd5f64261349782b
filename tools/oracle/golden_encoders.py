#!/usr/bin/env python3
"""Writes testdata/golden/encoders: rows of values, and the error that libgguf's encoders leave on them.

    python tools/oracle/golden_encoders.py [--models models]        # needs numpy, gguf 0.19, libgguf 0.2.2

rows.bin: f32, little-endian: for each set an importance of its columns, then its rows. errors.tsv: a line of the sets'
names, a line of their numbers of rows, a line of their numbers of columns, then two lines for each format: the root mean
square of value − decode(encode(value)) over each set, every value alike; and `NAME weighted`, where libgguf is given the
importance and squares are weighted by it. libgguf follows ggml. What it does not write without an importance it is given
ones.
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
           "TQ1_0", "TQ2_0", "MXFP4", "NVFP4", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS",
           "IQ3_S"]  # fmt: skip
ROWS_BYTES_MAX = 240_000


def real_rows(models: Path, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """A few rows of 512 weights from matrices of every kind, dequantised, of each model."""
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
            cuts = values.ravel()[: values.size // 512 * 512].reshape(-1, 512)
            rows.append(cuts[rng.integers(0, len(cuts), 1)])
        sets[path.stem] = np.concatenate(rows)
    if not sets:
        raise SystemExit(f"{models} has no models (tools/models/fetch.py fetches them)")
    return sets


def made_rows(rng: np.random.Generator) -> dict[str, np.ndarray]:
    gaussian = rng.normal(size=(8, 768)) * 0.02
    outliers = rng.normal(size=(12, 256)) * 0.02
    outliers[np.arange(12)[:, None], rng.integers(0, 256, (12, 3))] *= 30
    spike = np.zeros((3, 256))
    spike[[0, 1, 2], [0, 100, 255]] = [0.5, -0.25, 3.0]
    return {
        "gaussian": gaussian,
        "laplace": rng.laplace(size=(4, 1024)) * 0.02,
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


def importances(sets: dict[str, np.ndarray], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Mean squares of activations differ by orders of magnitude; in some sets there are dead and dominating columns."""
    made = {name: rng.lognormal(0, 1.5, rows.shape[1]) for name, rows in sets.items()}
    made["outliers"][rng.integers(0, 256, 64)] = 0
    made["uniform"][rng.integers(0, 256, 4)] *= 1e5
    made["small"][:] = (rng.normal(size=(30, 256)) ** 2).mean(0)
    return {name: row.astype(np.float32) for name, row in made.items()}


def error(rows: np.ndarray, importance: np.ndarray | None, name: str) -> float:
    weights = np.ones(rows.shape[1], np.float32) if importance is None else importance
    given = weights if importance is not None or libgguf.quantize_requires_imatrix(Type[name]) else None
    blocks = libgguf.quantize_rows(rows, Type[name], imatrix=given)
    decoded = libgguf.dequantize_rows(np.ascontiguousarray(blocks), Type[name])
    rest = rows.astype(np.float64) - decoded.astype(np.float64)
    return float(np.sqrt(np.mean(rest * rest * weights) / np.mean(weights)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, default=ROOT / "models", help="folder with the real GGUF files")
    rng = np.random.default_rng(20240611)
    sets = real_rows(parser.parse_args().models, rng) | made_rows(rng)
    sets = {name: np.ascontiguousarray(rows, np.float32) for name, rows in sets.items()}
    given = importances(sets, rng)
    raw = b"".join(given[name].astype("<f4").tobytes() + rows.astype("<f4").tobytes() for name, rows in sets.items())
    assert len(raw) <= ROWS_BYTES_MAX, f"{len(raw)} bytes"
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "rows.bin").write_bytes(raw)
    table = [["set", *sets], ["rows", *(len(rows) for rows in sets.values())]]
    table += [["columns", *(rows.shape[1] for rows in sets.values())]]
    for name in FORMATS:
        table += [[name, *(repr(error(rows, None, name)) for rows in sets.values())]]
        table += [[f"{name} weighted", *(repr(error(rows, given[of], name)) for of, rows in sets.items())]]
    (OUT / "errors.tsv").write_text("".join("\t".join(map(str, line)) + "\n" for line in table))
    print(f"{len(sets)} sets, {len(raw)} bytes of rows, {len(FORMATS)} formats")


if __name__ == "__main__":
    main()

"""Importance matrices that llama.cpp wrote, in both of its containers: testdata/golden/imatrix.

    python tools/oracle/imatrix.py LLAMA_IMATRIX [--dir testdata/golden/imatrix]

LLAMA_IMATRIX is the program of llama.cpp; it reads a few words with the tiny chat model of testdata/tiny. `expected.json` has
for each entry the number of its means, the first, the last and their sum, computed here from the bytes of the files: the GGUF
one through PyPI `gguf`, the older one by struct. Both must give the same means within rounding.
"""

import argparse
import json
import struct
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from gguf import GGUFReader

TEXT = "The quick brown fox jumps over the lazy dog, and the dog does not mind at all. " * 12


def from_gguf(path):
    tensors = {t.name: np.array(t.data, dtype=np.float32) for t in GGUFReader(path).tensors}
    names = sorted(name.removesuffix(".counts") for name in tensors if name.endswith(".counts"))
    return {name: (tensors[f"{name}.in_sum2"] / tensors[f"{name}.counts"]).ravel() for name in names}


def from_dat(path):
    raw, at, found = path.read_bytes(), 4, {}
    for _ in range(struct.unpack_from("<i", raw)[0]):
        (n,) = struct.unpack_from("<i", raw, at)
        name = raw[at + 4 : at + 4 + n].decode()
        n_calls, n_values = struct.unpack_from("<ii", raw, at + 4 + n)
        at += 12 + n
        found[name] = np.frombuffer(raw, "<f4", n_values, at) / np.float32(n_calls)
        at += 4 * n_values
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("--dir", type=Path, default=Path("testdata/golden/imatrix"))
    args = parser.parse_args()
    args.dir.mkdir(parents=True, exist_ok=True)
    model = args.dir.parent.parent / "tiny/with-vocab.gguf"
    with tempfile.TemporaryDirectory() as tmp:
        text = Path(tmp) / "fox.txt"
        text.write_text(TEXT)
        for kind in ("gguf", "dat"):
            out = args.dir.resolve() / f"fox.{kind}"
            call = [args.program, "-m", model.resolve(), "-f", text.name, "-o", out, "--output-format", kind]
            call += ["-c", "64", "--chunks", "3", "-t", "1"]
            subprocess.run(call, check=True, capture_output=True, cwd=tmp)
    means, old = from_gguf(args.dir / "fox.gguf"), from_dat(args.dir / "fox.dat")
    assert means.keys() == old.keys()
    assert all(np.allclose(means[name], old[name], rtol=1e-6) for name in means)
    facts = {n: [len(m), float(m[0]), float(m[-1]), float(m.sum(dtype=np.float64))] for n, m in means.items()}
    (args.dir / "expected.json").write_text(json.dumps(facts, indent=1) + "\n")
    print(f"{len(facts)} entries")


if __name__ == "__main__":
    main()

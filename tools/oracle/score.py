#!/usr/bin/env python3
"""Makes testdata/score: what llama.cpp's llama-perplexity and llama-imatrix say of tiny models.

    python tools/oracle/score.py FOLDER_OF_LLAMA_CPP_PROGRAMS [--dir testdata/score]

Three models are made from other fixtures, by rules that the tests follow too:

* `plain`: testdata/tiny/with-vocab.gguf with every weight decoded to F32.
* `coarse`: `plain` with every weight of its matrices rounded to a multiple of 1/8 (ties to even).
* `experts`: testdata/tiny/qwen3moe/model.gguf with the vocabulary of with-vocab.gguf; row i of its embedding and output
  matrices is row i mod 64 of the fixture's.

All is computed in F32, cache included, on one thread. Needs numpy and gguf.
"""

import argparse
import json
import re
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter, quants

TINY = Path(__file__).resolve().parents[2] / "testdata/tiny"
SIZE, CHUNKS = 32, 8
# A window of llama-perplexity with a stride is its context, which is a multiple of 256.
STRIDE_SIZE, STRIDE, STRIDE_CHUNKS = 256, 48, 3
# Herman Melville, Moby Dick (1851), chapter 1; in the public domain.
TEXT = (
    "Call me Ishmael. Some years ago\u2014never mind how long precisely\u2014having little or no money in my purse, and "
    "nothing particular to interest me on shore, I thought I would sail about a little and see the watery part of the "
    "world. It is a way I have of driving off the spleen and regulating the circulation. Whenever I find myself growing "
    "grim about the mouth; whenever it is a damp, drizzly November in my soul; whenever I find myself involuntarily "
    "pausing before coffin warehouses, and bringing up the rear of every funeral I meet; and especially whenever my "
    "hypos get such an upper hand of me, that it requires a strong moral principle to prevent me from deliberately "
    "stepping into the street, and methodically knocking people\u2019s hats off\u2014then, I account it high time to get "
    "to sea as soon as I can."
)


def copy_keys(reader, writer, wanted):
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture" or not wanted(key):
            continue
        kind = field.types[0]
        sub = {"sub_type": field.types[-1]} if kind == GGUFValueType.ARRAY else {}
        writer.add_key_value(key, field.contents(), kind, **sub)


def tensors(reader):
    for t in reader.tensors:
        shape = [int(n) for n in reversed(t.shape)]
        yield t.name, quants.dequantize(t.data, t.tensor_type).reshape(shape).astype(np.float32)


def write(path, architecture, keys, values):
    writer = GGUFWriter(str(path), architecture)
    for reader, wanted in keys:
        copy_keys(reader, writer, wanted)
    for name, value in values:
        writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def models(folder):
    vocab = GGUFReader(TINY / "with-vocab.gguf")
    every = [(vocab, lambda key: True)]
    coarse = lambda v: np.round(v * 8) / 8 if v.ndim > 1 else v
    write(folder / "plain.gguf", "llama", every, tensors(vocab))
    write(folder / "coarse.gguf", "llama", every, ((n, coarse(v)) for n, v in tensors(vocab)))
    moe = GGUFReader(TINY / "qwen3moe/model.gguf")
    is_text = lambda key: key.startswith("tokenizer.")
    keys = [(moe, lambda key: not is_text(key) and key != "qwen3moe.vocab_size"), (vocab, is_text)]
    rows = np.arange(305) % 64
    wide = lambda n, v: v[rows] if n in ("token_embd.weight", "output.weight") else v
    write(folder / "experts.gguf", "qwen3moe", keys, ((n, wide(n, v)) for n, v in tensors(moe)))


def run(programs, name, last, *args):
    """The output of a program; it is run again until its last line is there, which a quick exit can swallow."""
    command = [str(programs / name), "-t", "1", "-ctk", "f32", "-ctv", "f32", "-fa", "off", *map(str, args)]
    for _ in range(50):
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        if last in done.stdout + done.stderr:
            return done.stdout + done.stderr
    raise RuntimeError(f"no {last!r} in {done.stdout + done.stderr}")


def numbers(text):
    """Every line `name: value ± error` or `name: value` of a comparison."""
    pattern = re.compile(r"^ *(\S.*?) *: +(-?[\d.]+) *%? *(?:± +([\d.]+))?", re.M)
    after = text[text.index("====== Perplexity statistics"):]
    found = {m[1]: [float(m[2])] + ([float(m[3])] if m[3] else []) for m in pattern.finditer(after)}
    return {name: value for name, value in found.items() if "PPL" in name or "KLD" in name or "p" in name}


def running(text):
    return [float(value) for value in re.findall(r"\[\d+\]([\d.]+),", text)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", type=Path)
    parser.add_argument("--dir", type=Path, default=TINY.parent / "score")
    args = parser.parse_args()
    programs, out = args.programs.resolve(), args.dir.resolve()
    out.mkdir(parents=True, exist_ok=True)
    (out / "text.txt").write_text(TEXT)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        models(folder)
        text, base = out / "text.txt", out / "base.kld"
        common = ["-f", text, "-c", SIZE, "-b", 2 * SIZE]
        plain = run(programs, "llama-perplexity", "PPL = ", "-m", folder / "plain.gguf", *common, "--chunks", CHUNKS,
                    "--kl-divergence-base", base)
        final = re.search(r"PPL = ([\d.]+) \+/- ([\d.]+)", plain)
        compare = run(programs, "llama-perplexity", "Same top p:", "-m", folder / "coarse.gguf", "-c", SIZE, "-b", 2 * SIZE,
                      "--kl-divergence", "--kl-divergence-base", base)
        stride = run(programs, "llama-perplexity", f"[{STRIDE_CHUNKS}]", "-m", folder / "plain.gguf", "-f", text, "-c", 128, "-b", 128,
                     "--ppl-stride", STRIDE, "--chunks", STRIDE_CHUNKS)
        assert f"Calculation chunk = {STRIDE_SIZE}" in stride, stride
        for name, more in [("plain", ["--process-output"]), ("experts", [])]:
            run(programs, "llama-imatrix", "", "-m", folder / f"{name}.gguf", *common, "--chunks", CHUNKS, *more,
                "-o", out / f"{name}.imatrix.gguf")
        facts = {
            "generator": "tools/oracle/score.py",
            "size": SIZE,
            "chunks": CHUNKS,
            "ppl": [float(final[1]), float(final[2])],
            "running": running(plain),
            "compare": numbers(compare),
            "stride": {"size": STRIDE_SIZE, "stride": STRIDE, "chunks": STRIDE_CHUNKS, "running": running(stride)},
        }
        (out / "facts.json").write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()

"""Which format llama-quantize gives each tensor: the tables of testdata/golden/quantize.

    python tools/oracle/quantize_types.py LLAMA_QUANTIZE [--dir testdata/golden/quantize] [--real FOLDER] [--show]

LLAMA_QUANTIZE is the program of llama.cpp; its --dry-run prints the choice for every tensor and reads no weight. It is
asked about made-up headers (SHAPES below: grouped heads, tied and untied, eight and more experts, rows that are no
multiple of 256 or 32, the layer count of the 70B, merged projections) and, with --real, about the headers of the
models that the tests know. A made-up model is a file whose data is a hole, so it may be large.

`headers.json` holds what a test needs to make the same plan: metadata, and the shapes of the tensors outside the layers
and of each layer, innermost dimension last.
`types.tsv` has a line for each model and set of options, a column for each mix, and in it the FNV-1a hash (32 bits) of the
formats, run by run (`Q4_K*3 F32` is four tensors in the order of layers and names); the words themselves would take
1.6 MB, and --show prints them. With an importance matrix some choices differ; the matrix that is given has one entry that
fits no tensor, which is enough for the choice and makes small formats complain later.
"""

import argparse
import itertools
import json
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

MIXES = """Q4_0 Q4_1 MXFP4_MOE Q5_0 Q5_1 IQ2_XXS IQ2_XS IQ2_S IQ2_M IQ1_S IQ1_M TQ1_0 TQ2_0 Q2_K Q2_K_S IQ3_XXS IQ3_S
IQ3_M IQ3_XS Q3_K_S Q3_K_M Q3_K_L IQ4_NL IQ4_XS Q4_K_S Q4_K_M Q5_K_S Q5_K_M Q6_K Q8_0 F16 BF16 F32""".split()

# architecture, layers, width, feed-forward, heads, kv heads, head, vocabulary, experts, tied
SHAPES = {
    "dense": ("llama", 24, 512, 1024, 8, 8, 64, 512, 0, False),
    "grouped": ("llama", 17, 512, 1024, 8, 2, 64, 512, 0, True),
    "eight": ("llama", 16, 512, 256, 8, 2, 64, 512, 8, False),
    "eight-plain": ("llama", 9, 256, 256, 4, 4, 64, 512, 8, True),
    "many": ("qwen3moe", 11, 512, 768, 8, 2, 64, 512, 64, False),
    "four": ("qwen3moe", 10, 512, 256, 4, 4, 64, 512, 4, True),
    "70b": ("llama", 80, 512, 768, 8, 1, 64, 512, 0, False),
    "72b": ("qwen2", 80, 512, 768, 8, 8, 64, 512, 0, False),
    "narrow": ("qwen2", 12, 320, 608, 5, 5, 64, 96, 0, False),
    "odd": ("qwen2", 8, 40, 72, 2, 1, 20, 64, 0, True),
    "merged": ("phi2", 16, 512, 1024, 8, 8, 64, 512, 0, False),
    "sandwich": ("gemma2", 13, 512, 768, 8, 4, 64, 512, 0, True),
}

OPTIONS = {
    "": [],
    "pure": ["--pure"],
    "leave": ["--leave-output-tensor"],
    "output": ["--output-tensor-type", "q5_1"],
    "embedding": ["--token-embedding-type", "q8_0"],
    "rules": ["--tensor-type", "attn_v=q8_0", "--tensor-type", r"blk\.[0-3]\.ffn_(up|down)=iq4_nl"],
}
LINE = re.compile(r"^\[ *\d+/ *\d+\] +(\S+) +- \[([ ,0-9]+)\], type = +(\w+), size = +[\d.]+ MiB(?: -> +[\d.]+ MiB \((\w+)\))?")


def parts(shape):
    """Name to dimensions, outermost first: of no layer, and of each."""
    arch, _, width, ffn, heads, kv, head, vocab, experts, tied = shape
    outer = {"token_embd.weight": [vocab, width], "output_norm.weight": [width]}
    if not tied:
        outer["output.weight"] = [vocab, width]
    layer = {"attn_norm.weight": [width]}
    if arch == "phi2":
        layer |= {"attn_qkv.weight": [3 * width, width], "attn_qkv.bias": [3 * width]}
    else:
        layer |= {f"attn_{p}.weight": [n * head, width] for p, n in (("q", heads), ("k", kv), ("v", kv))}
    layer["attn_output.weight"] = [width, heads * head]
    if arch == "gemma2":
        layer |= {"post_attention_norm.weight": [width], "post_ffw_norm.weight": [width]}
    layer["ffn_norm.weight"] = [width]
    if experts:
        layer["ffn_gate_inp.weight"] = [experts, width]
        layer |= {f"ffn_{p}_exps.weight": [experts, ffn, width] for p in ("gate", "up")}
        layer["ffn_down_exps.weight"] = [experts, width, ffn]
    else:
        layer |= {f"ffn_{p}.weight": [ffn, width] for p in (("up",) if arch == "phi2" else ("gate", "up"))}
        layer["ffn_down.weight"] = [width, ffn]
    return outer, layer


def tensors(shape):
    """All tensors in the order of the file, which is not that of names."""
    outer, layer = parts(shape)
    layers = reversed(range(shape[1]))
    return outer | {f"blk.{i}.{name}": dims for i in layers for name, dims in layer.items()}


def metadata(shape):
    arch, n_layers, width, ffn, heads, kv, head, vocab, experts, _ = shape
    keys = {
        "general.architecture": arch,
        f"{arch}.block_count": n_layers,
        f"{arch}.context_length": 512,
        f"{arch}.embedding_length": width,
        f"{arch}.feed_forward_length": ffn,
        f"{arch}.attention.head_count": heads,
        f"{arch}.attention.head_count_kv": kv,
        f"{arch}.attention.key_length": head,
        f"{arch}.attention.value_length": head,
        f"{arch}.vocab_size": vocab,
        f"{arch}.rope.dimension_count": head,
        f"{arch}.attention.sliding_window": 64,
        f"{arch}.attention.layer_norm_rms_epsilon": 1e-5,
        f"{arch}.attention.layer_norm_epsilon": 1e-5,
    }
    if experts:
        keys |= {f"{arch}.expert_count": experts, f"{arch}.expert_used_count": 2}
        keys |= {f"{arch}.expert_feed_forward_length": ffn}
    return keys


def write(path, keys, shapes):
    """A GGUF file of F32 tensors whose data is a hole."""

    def text(s):
        return struct.pack("<Q", len(s)) + s.encode()

    def value(v):
        if isinstance(v, str):
            return struct.pack("<I", 8) + text(v)
        return struct.pack("<If", 6, v) if isinstance(v, float) else struct.pack("<II", 4, v)

    out = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(keys))
    out += b"".join(text(k) + value(v) for k, v in keys.items())
    offset = 0
    for name, dims in shapes.items():
        out += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *reversed(dims), 0, offset)
        n = 4
        for dim in dims:
            n *= dim
        offset += -(-n // 32) * 32
    with open(path, "wb") as file:
        file.write(out)
        file.truncate(-(-len(out) // 32) * 32 + offset)


def blind_imatrix(path):
    """The older file with one entry."""
    name = b"no.such.tensor"
    path.write_bytes(struct.pack("<ii", 1, len(name)) + name + struct.pack("<iif", 1, 1, 1.0))


def choices(program, model, mix, options):
    """(name, format) of every tensor, in the order of layers and names."""
    call = [program, "--dry-run", "--allow-requantize", *options, str(model), mix]
    done = subprocess.run(call, capture_output=True, text=True, errors="replace")
    found = []
    for line in done.stdout.splitlines() + done.stderr.splitlines():
        match = LINE.match(line)
        if match:
            found.append((match[1], (match[4] or match[3]).upper()))
    if done.returncode or not found:
        sys.exit(f"{call}: {done.stderr[-500:]}")
    return found


def runs(found):
    groups = ((name, len(list(group))) for name, group in itertools.groupby(kind for _, kind in found))
    return " ".join(name if n == 1 else f"{name}*{n}" for name, n in groups)


def fnv(text):
    value = 0x811C9DC5
    for byte in text.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return f"{value:08x}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("--dir", type=Path, default=Path("testdata/golden/quantize"))
    parser.add_argument("--real", type=Path, help="folder of the tests' models")
    parser.add_argument("--show", action="store_true", help="print the formats too")
    args = parser.parse_args()
    args.dir.mkdir(parents=True, exist_ok=True)
    headers, lines = {}, ["\t".join(["model", "options", *MIXES])]
    with tempfile.TemporaryDirectory() as tmp:
        imatrix = Path(tmp) / "blind.dat"
        blind_imatrix(imatrix)
        known = ["--imatrix", str(imatrix)]

        def ask(name, path, options):
            for label, extra in options.items():
                found = [runs(choices(args.program, path, mix, extra)) for mix in MIXES]
                if args.show:
                    print("\n".join(f"{name}\t{label}\t{mix}\t{text}" for mix, text in zip(MIXES, found)))
                lines.append("\t".join([name, label, *map(fnv, found)]))
            print(f"{name}: done", file=sys.stderr, flush=True)

        for name, shape in SHAPES.items():
            path = Path(tmp) / f"{name}.gguf"
            shapes = tensors(shape)
            write(path, metadata(shape), shapes)
            outer, layer = parts(shape)
            headers[name] = dict(metadata=metadata(shape), layers=shape[1], outer=outer, layer=layer)
            with_matrix = {f"{k}+matrix" if k else "matrix": known + v for k, v in OPTIONS.items() if k in ("", "rules")}
            few = {k: v for k, v in OPTIONS.items() if name in ("dense", "grouped", "narrow") or k == ""}
            ask(name, path, few | with_matrix)
            path.unlink()
        for path in sorted(args.real.glob("*.gguf")) if args.real else []:
            ask(path.name, path, {"": [], "matrix": known})
    (args.dir / "types.tsv").write_text("\n".join(lines) + "\n")
    (args.dir / "headers.json").write_text(json.dumps(headers) + "\n")
    print(f"{len(lines)} lines", file=sys.stderr)


if __name__ == "__main__":
    main()

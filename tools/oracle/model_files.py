#!/usr/bin/env python3
"""Writes small model files with foreign writers to testdata/golden/files, and what they hold as expected.json.

    python3 tools/oracle/model_files.py                 # needs gguf==0.19, safetensors, torch, numpy
    python3 tools/oracle/model_files.py --check FILE…   # prints what gguf-py reads from files of our writer, as JSON

The tensors and offsets in expected.json come from gguf-py's reader, the metadata from the values given to its writer.
"""

import json
import pathlib
import struct
import sys

import gguf
import numpy as np
from gguf import GGUFEndian, GGUFReader, GGUFValueType as T, GGUFWriter

HERE = pathlib.Path(__file__).resolve().parents[2] / "testdata" / "golden" / "files"
NUMBERS = [
    (T.UINT8, "u8", [0, 1, 255]),
    (T.INT8, "i8", [-128, 0, 127]),
    (T.UINT16, "u16", [0, 258, 65535]),
    (T.INT16, "i16", [-32768, 0, 32767]),
    (T.UINT32, "u32", [0, 16909060, 4294967295]),
    (T.INT32, "i32", [-2147483648, 0, 2147483647]),
    (T.UINT64, "u64", [0, 72623859790382856, 18446744073709551615]),
    (T.INT64, "i64", [-9223372036854775808, 0, 9223372036854775807]),
    (T.FLOAT32, "f32", [0.0, -0.15625, 3.4028234663852886e38, float("-inf"), float("nan")]),
    (T.FLOAT64, "f64", [0.0, -0.1, 1.7976931348623157e308, float("inf"), 5e-324]),
    (T.BOOL, "bool", [False, True, True]),
]
STRINGS = ["", "hello", "Ġ", "<0x0A>", "日本語 🦀", "line\nbreak\ttab", "\u0000nul"]


def exact(name, value):
    """Floats as their bits: JSON parsers round."""
    if name not in ("f32", "f64"):
        return value
    return int.from_bytes(struct.pack("<f" if name == "f32" else "<d", value), "little")


def fill(writer, meta):
    """Every value type, alone and in an array."""
    writer.add_string("general.name", "tiny")
    meta["general.name"] = ["string", "tiny"]
    for vtype, name, values in NUMBERS:
        writer.add_key_value(f"one.{name}", values[-1], vtype)
        meta[f"one.{name}"] = [name, exact(name, values[-1])]
        writer.add_key_value(f"many.{name}", values, T.ARRAY, sub_type=vtype)
        meta[f"many.{name}"] = [f"array of {name}", [exact(name, v) for v in values]]
    writer.add_string("one.string", STRINGS[4])
    meta["one.string"] = ["string", STRINGS[4]]
    writer.add_key_value("many.string", STRINGS, T.ARRAY, sub_type=T.STRING)
    meta["many.string"] = ["array of string", STRINGS]


def tensors(writer):
    rng = np.random.default_rng(20)
    writer.add_tensor("norm.weight", rng.standard_normal(5).astype(np.float32))
    writer.add_tensor("half.weight", rng.standard_normal((3, 7)).astype(np.float16))
    q8 = gguf.quants.quantize(rng.standard_normal((4, 64)).astype(np.float32), gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("q8.weight", q8, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    q4 = rng.integers(0, 256, (2, 3, 144), dtype=np.uint8)
    writer.add_tensor("experts.weight", q4, raw_dtype=gguf.GGMLQuantizationType.Q4_K)
    writer.add_tensor("four.weight", rng.standard_normal((2, 3, 4, 5)).astype(np.float32))
    writer.add_tensor("ids", np.arange(6, dtype=np.int32))


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def read(path):
    reader = GGUFReader(path)
    found = []
    for t in reader.tensors:
        shape = [int(d) for d in t.shape][::-1]
        found.append([t.name, t.tensor_type.name, shape, int(t.data_offset), int(t.n_bytes), t.data.tobytes().hex()])
    return {"alignment": int(reader.alignment), "tensors": found}


def gguf_files(expected):
    for name, alignment in [("plain", None), ("aligned", 128)]:
        meta = {"general.architecture": ["string", "llama"]}
        writer = GGUFWriter(HERE / f"{name}.gguf", "llama")
        if alignment:
            writer.add_custom_alignment(alignment)
            meta["general.alignment"] = ["u32", alignment]
        fill(writer, meta)
        tensors(writer)
        finish(writer)
        expected[f"{name}.gguf"] = {"version": 3, "metadata": meta, **read(HERE / f"{name}.gguf")}
    # Version 2 has the same layout; it differs from 3 in not knowing big-endian.
    data = bytearray((HERE / "plain.gguf").read_bytes())
    data[4:8] = struct.pack("<I", 2)
    (HERE / "version-2.gguf").write_bytes(data)
    expected["version-2.gguf"] = {**expected["plain.gguf"], "version": 2}
    # Split by gguf-py: three parts of two tensors.
    writer = GGUFWriter(HERE / "split.gguf", "llama", split_max_tensors=2)
    meta = {"general.architecture": ["string", "llama"]}
    fill(writer, meta)
    tensors(writer)
    finish(writer)
    parts = sorted(p.name for p in HERE.glob("split-*.gguf"))
    expected["split"] = {"parts": parts, "metadata": meta, "tensors": [read(HERE / p)["tensors"] for p in parts]}
    writer = GGUFWriter(HERE / "big-endian.gguf", "llama", endianess=GGUFEndian.BIG)
    tensors_only = np.arange(8, dtype=np.float32)
    writer.add_tensor("t", tensors_only)
    finish(writer)
    # A vocabulary without tensors.
    writer = GGUFWriter(HERE / "vocabulary.gguf", "llama")
    writer.add_token_list(["a", "b"])
    finish(writer)


def safetensors_files(expected):
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(20)
    all_types = {
        "f32": torch.randn(3, 4),
        "f16": torch.randn(2, 3, 4).half(),
        "bf16": torch.randn(5).bfloat16(),
        "f64": torch.randn(2).double(),
        "i8": torch.arange(-3, 3).to(torch.int8),
        "i16": torch.arange(-3, 3).to(torch.int16),
        "i32": torch.arange(-3, 3).to(torch.int32),
        "i64": torch.arange(-3, 3),
        "scalar": torch.tensor(1.5),
        "empty": torch.zeros(0, 4),
        "mask": torch.tensor([True, False, True]),
        "bytes": torch.arange(5).to(torch.uint8),
        "f8": torch.randn(4).to(torch.float8_e4m3fn),
    }
    save_file(all_types, HERE / "types.safetensors", metadata={"format": "pt", "note": "é"})

    def describe(tensors):
        raw = {k: v.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() for k, v in tensors.items()}
        return {k: [str(v.dtype).split(".")[1], list(v.shape), raw[k].hex()] for k, v in tensors.items()}

    expected["types.safetensors"] = describe(all_types)
    folder = HERE / "sharded"
    folder.mkdir(exist_ok=True)
    shards = [{"a": torch.randn(2, 3), "b": torch.randn(4)}, {"c": torch.randn(1), "d": torch.randn(2, 2).half()}]
    weight_map, everything = {}, {}
    for i, shard in enumerate(shards):
        name = f"model-{i + 1:05}-of-00002.safetensors"
        save_file(shard, folder / name, metadata={"format": "pt"})
        weight_map.update(dict.fromkeys(shard, name))
        everything.update(shard)
    index = {"metadata": {"total_size": 60}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
    expected["sharded"] = describe(everything)


def main():
    if sys.argv[1:2] == ["--check"]:
        for path in sys.argv[2:]:
            fields = GGUFReader(path).fields.values()
            meta = {f.name: [[t.name for t in f.types], repr(f.contents())] for f in fields}
            print(json.dumps({"file": pathlib.Path(path).name, "metadata": meta, **read(path)}))
        return
    HERE.mkdir(parents=True, exist_ok=True)
    for old in HERE.glob("split-*.gguf"):
        old.unlink()
    expected = {}
    gguf_files(expected)
    safetensors_files(expected)
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()

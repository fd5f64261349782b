#!/usr/bin/env python3
"""Writes tiny hostile GGUF and safetensors files to testdata/hostile.

    python3 tools/oracle/hostile_gguf.py [FOLDER]

Needs nothing but Python. `expected.tsv` beside the files has one line a file: its name, a tab, and a phrase that the
error must contain. Each stands for a kind of fault that hurt another loader; DESIGN and SECURITY name the rules.
"""

import json
import pathlib
import struct
import sys

U8, U32, BOOL, STRING, ARRAY, U64 = 0, 4, 7, 8, 9, 10
F32, Q8_0 = 0, 8


def u32(n):
    return struct.pack("<I", n)


def u64(n):
    return struct.pack("<Q", n)


def text(s):
    s = s.encode() if isinstance(s, str) else s
    return u64(len(s)) + s


def pair(key, vtype, value):
    return text(key) + u32(vtype) + value


def tensor(name="t", dims=(32,), ggml_type=F32, offset=0):
    return text(name) + u32(len(dims)) + b"".join(u64(d) for d in dims) + u32(ggml_type) + u64(offset)


def gguf(pairs=(), tensors=(), data=b"", version=3, n_keys=None, n_tensors=None, align=32):
    out = b"GGUF" + u32(version)
    out += u64(len(tensors) if n_tensors is None else n_tensors)
    out += u64(len(pairs) if n_keys is None else n_keys)
    out += b"".join(pairs) + b"".join(tensors)
    if tensors:
        out += bytes(-len(out) % align)
    return out + data


ARCH = pair("general.architecture", STRING, text("llama"))
ALIGN = "general.alignment"
DATA = bytes(128)


def array(elem, n, data=b""):
    return u32(elem) + u64(n) + data


def gguf_cases():
    one = gguf([ARCH], [tensor()], DATA)
    yield "empty", b"", "truncated inside the magic number"
    yield "magic", b"PK\x03\x04" + bytes(60), "not a GGUF file"
    yield "lfs-pointer", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "Git LFS pointer"
    yield "ggjt", b"tjgg" + bytes(60), "from before GGUF"
    yield "version-1", gguf(version=1), "GGUF version 1 is not supported"
    yield "version-99", gguf(version=99), "GGUF version 99 is unknown"
    yield "version-0", gguf(version=0), "GGUF version 0 is unknown"
    yield "big-endian", b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian GGUF (version 3)"
    # Counts and lengths: CVE-2024-21802, CVE-2024-23496, CVE-2025-53630, CVE-2026-27940, ollama #17042, ggml #1516.
    yield "tensor-count-huge", gguf(n_tensors=1 << 63), "the tensor count is 9223372036854775808"
    yield "tensor-count-wraps", gguf(n_tensors=(1 << 64) // 33 + 1), "above the limit"
    yield "tensor-count-short", gguf([ARCH], n_tensors=1000), "the tensor count is 1000: at least"
    yield "tensor-count-after-keys", gguf([pair("k", STRING, text("x" * 400))], n_tensors=10), "the tensor count is 10"
    yield "key-count-huge", gguf(n_keys=(1 << 64) - 1), "the metadata count is 18446744073709551615"
    yield "key-count-short", gguf([ARCH], n_keys=1000), "the metadata count is 1000: at least"
    yield "key-length-huge", gguf([u64((1 << 64) - 1) + bytes(64)]), "metadata key 0 has 18446744073709551615 bytes"
    yield "key-empty", gguf([pair("", U8, b"\1\0")]), "metadata key 0 is empty"
    yield "string-1-gib", gguf([pair("k", STRING, u64(1 << 30))]), "the string has 1073741824 bytes, above the limit"
    yield "string-short", gguf([pair("k", STRING, u64(1 << 20) + b"abc")]), "1048573 bytes are missing"
    yield "array-count-wraps", gguf([pair("k", ARRAY, array(U64, 1 << 61))]), "the array length is 2305843009213693952"
    yield "array-count-short", gguf([pair("k", ARRAY, array(STRING, 1 << 24))]), "the array length is 16777216"
    yield "array-nested", gguf([pair("k", ARRAY, array(ARRAY, 1, array(U8, 1, b"\1")))]), "arrays of arrays"
    yield "array-type", gguf([pair("k", ARRAY, array(77, 1, b"\1"))]), "array element type 77 is unknown"
    token = array(STRING, 1, text("x" * 70000))
    yield "token-length", gguf([pair("tokenizer.ggml.tokens", ARRAY, token)]), "has 70000 bytes, above the limit"
    # Types: llama.cpp #26690, #26318.
    yield "value-type", gguf([pair("k", 13, b"\1")]), "value type 13 is unknown"
    yield "bool-2", gguf([pair("k", BOOL, b"\2")]), "the bool has the value 2"
    yield "alignment-0", gguf([pair(ALIGN, U32, u32(0))], [tensor()], DATA), "general.alignment is 0"
    yield "alignment-24", gguf([pair(ALIGN, U32, u32(24))], [tensor()], DATA), "general.alignment is 24"
    yield "alignment-huge", gguf([pair(ALIGN, U32, u32(1 << 31))], [tensor()], DATA), "general.alignment is 2147483648"
    yield "alignment-string", gguf([pair(ALIGN, STRING, text("32"))], [tensor()], DATA), "should be u32, found string"
    # Names.
    yield "key-twice", gguf([ARCH, ARCH]), 'metadata key "general.architecture" is there more than once'
    yield "key-not-utf8", gguf([pair(b"k\xff", U8, b"\1\0")]), "metadata key 0 is not UTF-8"
    token = array(STRING, 2, text("ok") + text(b"\xc3\x28"))
    yield "token-not-utf8", gguf([pair("tokenizer.ggml.tokens", ARRAY, token)]), "index 1: a string of the array is not"
    yield "tensor-twice", gguf([ARCH], [tensor(), tensor(offset=128)], DATA * 2), 'tensor "t" is there more than once'
    yield "tensor-not-utf8", gguf([ARCH], [tensor(b"t\xfe")], DATA), "the name of tensor 0 is not UTF-8"
    yield "tensor-control", gguf([ARCH], [tensor("t\x1b[2J")], DATA), "contains control characters"
    yield "tensor-name-long", gguf([ARCH], [tensor("t" * 256)], DATA), "has 256 bytes, above the limit"
    # Dimensions: CVE-2026-33298.
    yield "dims-0", gguf([ARCH], [tensor(dims=())], DATA), "0 dimensions; 1 to 4 are allowed"
    yield "dims-5", gguf([ARCH], [tensor(dims=(2,) * 5)], DATA), "5 dimensions; 1 to 4 are allowed"
    yield "dims-many", gguf([ARCH], [text("t") + u32(0xFFFFFFFF)], bytes(64)), "4294967295 dimensions"
    yield "dims-zero", gguf([ARCH], [tensor(dims=(32, 0))], DATA), "contain zero"
    yield "dims-wrap", gguf([ARCH], [tensor(dims=(1 << 32, 1 << 32))], DATA), "overflows"
    yield "dims-wrap-bytes", gguf([ARCH], [tensor(dims=(1 << 62, 1))], DATA), "not whole blocks"
    yield "dims-block", gguf([ARCH], [tensor(dims=(33,), ggml_type=Q8_0)], DATA), "not whole blocks of 32 elements"
    # Ranges: CVE-2026-7482.
    yield "offset-unaligned", gguf([ARCH], [tensor(offset=16)], DATA * 2), "offset 16 is not a multiple of"
    yield "offset-beyond", gguf([ARCH], [tensor(offset=1 << 20)], DATA), "1048576 bytes are missing"
    yield "offset-wrap", gguf([ARCH], [tensor(offset=(1 << 64) - 32)], DATA), "overflows"
    yield "offset-wrap-start", gguf([ARCH], [tensor(dims=(8,), offset=(1 << 64) - 64)], DATA), "its end overflows"
    two = [tensor("a"), tensor("b", offset=96)]
    yield "offset-overlap", gguf([ARCH], two, DATA * 2), 'tensors "a" and "b" overlap'
    yield "type-removed", gguf([ARCH], [tensor(ggml_type=4)], DATA), "was removed"
    yield "type-unknown", gguf([ARCH], [tensor(ggml_type=255)], DATA), 'tensor "t": ggml type 255 is unknown'
    yield "truncated-header", one[:50], "bytes are missing"
    yield "truncated-data", one[:-28], "28 bytes are missing"
    split = [pair("split.no", 2, b"\1\0"), pair("split.count", 2, b"\3\0"), pair("split.tensors.count", 5, u32(3))]
    yield "split-name", gguf(split), "its name does not end in -00002-of-00003.gguf"
    yield "split-no", gguf([pair("split.no", 2, b"\3\0")] + split[1:]), "split.no 3 of split.count 3 is out of range"


def st(header, data=b""):
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    return u64(len(header)) + header + data


def entry(start=0, end=16, dtype="F32", shape=(4,), **more):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end], **more}


def safetensors_cases():
    data = bytes(16)
    good = st({"a": entry()}, data)
    yield "empty", b"", "8 bytes are missing"
    yield "header-bomb", u64(100_000_001) + b"{}", "above the limit of 100000000"
    yield "header-length-wraps", u64((1 << 64) - 1) + b"{}", "above the limit"
    yield "header-beyond", u64(1000) + b"{}", "998 are missing"
    yield "header-space", st(b" {}"), "does not begin with '{'"
    yield "header-json", st(b'{"a":'), "the header is malformed"
    yield "header-array", st(b"{}[]"), "the header is malformed"
    yield "header-deep", st(b'{"a":{"shape":' + b"[" * 4000), "the header is malformed"
    twice = json.dumps(entry())
    yield "tensor-twice", st(f'{{"a":{twice},"a":{twice}}}'.encode(), data), 'tensor "a" is there more than once'
    yield "field-twice", st(
        b'{"a":{"dtype":"F32","dtype":"F32","shape":[4],"data_offsets":[0,16]}}', data
    ), 'the field "dtype" is there more than once'
    yield "field-missing", st(b'{"a":{"dtype":"F32","shape":[4]}}', data), 'the field "data_offsets" is missing'
    yield "field-unknown", st({"a": entry(more=1)}, data), 'the field "more" is unknown'
    yield "metadata-twice", st(b'{"__metadata__":{"a":"1","a":"2"}}'), 'the key "a" is there more than once'
    yield "metadata-number", st(b'{"__metadata__":{"a":1}}'), "expected a string"
    yield "name-control", st({"a\n": entry()}, data), "has control characters"
    yield "dtype-unknown", st({"a": entry(dtype="F33")}, data), 'the type "F33" is unknown'
    yield "size-dtype", st({"a": entry(dtype="F16")}, data), "needs 8 bytes, data_offsets give 16"
    yield "size-shape", st({"a": entry(shape=(5,))}, data), "needs 20 bytes, data_offsets give 16"
    yield "shape-wraps", st({"a": entry(shape=(1 << 32, 1 << 32))}, data), "overflows"
    yield "shape-wraps-zero", st({"a": entry(0, 0, shape=(1 << 32, 1 << 32, 0))}), "overflows"
    yield "shape-negative", st({"a": entry(shape=(-4,))}, data), "the header is malformed"
    yield "shape-rank", st({"a": entry(shape=(1,) * 9)}, data), "more than 8 dimensions"
    yield "offsets-backwards", st({"a": entry(16, 0)}, data), "run backwards"
    yield "offsets-hole", st({"a": entry(4, 20)}, bytes(20)), "leaves a hole"
    yield "offsets-overlap", st({"a": entry(), "b": entry(8, 24)}, bytes(24)), "overlaps"
    yield "offsets-beyond", st({"a": entry(), "b": entry(16, 32)}, data), "16 bytes are missing"
    yield "data-truncated", good[:-5], "5 bytes are missing"
    yield "data-trailing", good + b"x", "1 bytes follow the last tensor"


def index_cases():
    def index(shard, tensor="a"):
        return json.dumps({"metadata": {}, "weight_map": {tensor: shard}}).encode()

    for name, shard in [
        ("parent", "../a.safetensors"),
        ("absolute", "/etc/a.safetensors"),
        ("folder", "x/a.safetensors"),
        ("backslash", "..\\a.safetensors"),
        ("drive", "c:a.safetensors"),
        ("dot", "./a.safetensors"),
        ("other", "passwd"),
    ]:
        yield f"index-{name}", index(shard), "not a plain .safetensors file name"
    yield "index-twice", b'{"weight_map":{"a":"x.safetensors","a":"y.safetensors"}}', 'key "a" is there more than once'
    yield "index-no-map", b'{"metadata":{}}', "weight_map is missing"
    yield "index-list", b'{"weight_map":[]}', "the index is malformed"


def main():
    here = pathlib.Path(__file__).resolve().parents[2]
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "testdata" / "hostile"
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    kinds = [("gguf", gguf_cases()), ("safetensors", safetensors_cases()), ("safetensors.index.json", index_cases())]
    for suffix, cases in kinds:
        for name, content, phrase in cases:
            file = f"{name}.{suffix}"
            (folder / file).write_bytes(content)
            rows.append(f"{file}\t{phrase}\n")
    (folder / "expected.tsv").write_text("".join(rows))
    print(f"{len(rows)} files")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes testdata/golden/tokenizer/: token ids from other people's tokenizers.

  vocabs  llama_vocabs.json: the .inp/.out pairs beside the vocabularies of tools/models/fetch_vocabs.py (llama.cpp's own
          expected values).
  models  NAME.json for each real GGUF given: ids by llama.cpp's server (pip xllamacpp) of odd_text.py, with and without
          control tokens read, and the text that llama.cpp makes of random ids.
  json    json.json: number and FNV-1a hash of the ids by PyPI's `tokenizers` for each models/tokenizers/NAME (see
          tools/models/fetch_tokenizers.py), of odd_text.py and of two million spaces, with and without special tokens.
Files are compact JSON; ids are run-length coded: [id, id, [id, count], ...].

Usage: tokenizer_goldens.py vocabs | models NAME=FILE.gguf... | json
"""

import json
import pathlib
import random
import sys
import urllib.request

import odd_text

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "testdata" / "golden" / "tokenizer"
MARK = "\n__ggml_vocab_test__\n"


def rle(ids):
    runs = []
    for i in ids:
        if runs and runs[-1][0] == i:
            runs[-1][1] += 1
        else:
            runs.append([i, 1])
    return [x for i, n in runs for x in ([i] * n if n < 3 else [[i, n]])]


def write(name, value):
    OUT.mkdir(parents=True, exist_ok=True)
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    (OUT / name).write_text(text.replace('],"', '],\n"') + "\n")
    print(OUT / name, len(text))


def vocabs():
    inputs, cases = [], {}
    for out in sorted((ROOT / "models" / "vocab").glob("*.out")):
        inp = out.with_suffix(".inp").read_bytes().decode()
        texts = inp.split(MARK)[:-1] if inp.endswith(MARK) else inp.split(MARK)
        lines = out.read_text().split("\n")[: len(texts)]
        if texts not in inputs:
            inputs.append(texts)
        ids = [rle([int(i) for i in line.split()]) for line in lines]
        assert len(ids) == len(texts), out
        cases[out.name.removeprefix("ggml-vocab-").removesuffix(".gguf.out")] = {"inputs": inputs.index(texts), "ids": ids}
    write("llama_vocabs.json", {"inputs": inputs, "cases": cases})


class Server:
    """llama.cpp's HTTP server around one model."""

    def __init__(self, path):
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_ctx = 64
        params.warmup = False
        self.server = xllamacpp.Server(params)

    def ask(self, route, body):
        request = urllib.request.Request(
            self.server.listening_address + route, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def encode(self, text, add_special, parse_special):
        body = {"content": text, "add_special": add_special, "parse_special": parse_special}
        return self.ask("/tokenize", body)["tokens"]

    def decode(self, ids):
        return self.ask("/detokenize", {"tokens": ids})["content"]


def models(specs):
    texts = odd_text.texts()
    for spec in specs:
        name, path = spec.split("=")
        server = Server(path)
        expanded = [odd_text.expand(t) for t in texts]
        parsed = [server.encode(t, True, True) for t in expanded]
        plain = [server.encode(t, False, False) for t in expanded]
        differ = {i: rle(ids) for i, ids in enumerate(plain) if ids != parsed[i]}
        rng = random.Random(11)
        top = max(max(ids, default=0) for ids in parsed)
        seqs = [[rng.randint(0, top) for _ in range(12)] for _ in range(40)]
        decoded = [[seq, server.decode(seq)] for seq in seqs]
        value = {"texts": texts, "parsed": [rle(i) for i in parsed], "plain": differ, "decoded": decoded}
        write(f"{name}.json", value)


def fnv(ids):
    h = 0xCBF29CE484222325
    for i in ids:
        for b in i.to_bytes(4, "little"):
            h = ((h ^ b) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return [len(ids), f"{h:016x}"]


def json_files():
    import tokenizers

    texts = odd_text.texts() + [[" ", 2_000_000]]
    cases = {}
    for path in sorted((ROOT / "models" / "tokenizers").glob("*/tokenizer.json")):
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        expanded = [odd_text.expand(t) for t in texts]
        parsed = [fnv(tokenizer.encode(t, add_special_tokens=True).ids) for t in expanded]
        tokenizer.encode_special_tokens = True
        plain = [fnv(tokenizer.encode(t, add_special_tokens=False).ids) for t in expanded]
        cases[path.parent.name] = {"parsed": parsed, "plain": plain}
        print(path.parent.name, flush=True)
    write("json.json", {"texts": texts, "cases": cases})


if __name__ == "__main__":
    if sys.argv[1:2] == ["vocabs"]:
        vocabs()
    elif sys.argv[1:2] == ["models"]:
        models(sys.argv[2:])
    elif sys.argv[1:2] == ["json"]:
        json_files()
    else:
        sys.exit(__doc__)

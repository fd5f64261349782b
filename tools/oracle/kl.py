#!/usr/bin/env python3
"""kl.py MODEL.gguf OUT.bin f32|q: llama.cpp's predictions over 500 tokens of Moby Dick.
   kl.py compare A.bin B.bin: how far apart two such files are.

f32: MODEL.gguf is the file rewritten by gguf_to_f32.py, F32 KV cache, flash attention off, no repacking.
q:   MODEL.gguf is the quantised file itself under llama.cpp's defaults (F16 KV cache).
Each position's 256 best tokens and the probability of the rest go into OUT.bin, as testdata/tokens/README.md sets out.
"""

import os
import sys

import llamacpp
import numpy as np

N_TOKENS = 500
N_TOP = 256
MAGIC = b"HZKL"
FORMAT_VERSION = 1
MOBY = os.path.join(os.path.dirname(__file__), "../../testdata/tokens/moby.txt")


def top_rows(rows):
    """ids u32 and logprobs f32, [N_TOKENS, N_TOP], best first; rest f32, [N_TOKENS], a probability."""
    ids, logprobs, rest = [], [], []
    for row in rows:
        order = np.argsort(-row, kind="stable")
        ids.append(order[:N_TOP])
        logprobs.append(row[order[:N_TOP]])
        rest.append(np.exp(row[order[N_TOP:]]).sum())
    return np.array(ids, "<u4"), np.array(logprobs, "<f4"), np.array(rest, "<f4")


def read_rows(path):
    with open(path, "rb") as f:
        raw = f.read()
    version, n, k, _ = np.frombuffer(raw, "<u4", 4, len(MAGIC))
    if raw[: len(MAGIC)] != MAGIC or version != FORMAT_VERSION:
        raise SystemExit(f"{path}: not a file of this script")
    at = len(MAGIC) + 16 + 4 * n + 4 * n  # header, tokens, rest
    ids = np.frombuffer(raw, "<u4", n * k, at).reshape(n, k)
    logprobs = np.frombuffer(raw, "<f4", n * k, at + 4 * n * k).reshape(n, k)
    return ids, logprobs.astype(np.float64)


def compare(path, other):
    """KL(path || other) over the tokens that both list and one bucket for the others; top-1 agreement."""
    kl, n_same = [], 0
    for ids, p, other_ids, q in zip(*read_rows(path), *read_rows(other)):
        _, i, j = np.intersect1d(ids, other_ids, return_indices=True)
        p_rest, q_rest = 1 - np.exp(p[i]).sum(), 1 - np.exp(q[j]).sum()
        kl.append((np.exp(p[i]) * (p[i] - q[j])).sum() + p_rest * np.log(p_rest / q_rest))
        n_same += int(ids[0] == other_ids[0])
    print(f"KL({path} || {other}): mean {np.mean(kl):.2e}, largest {max(kl):.2e}; top-1 agreement {n_same / len(kl):.1%}")


def main(model, out, kind):
    exact = {"f32": True, "q": False}[kind]
    with open(MOBY, encoding="utf-8") as f:
        moby = f.read()
    oracle = llamacpp.Oracle(model, 512, exact)
    fed = oracle.tokenize(moby, True, False)[:N_TOKENS]
    ids, logprobs, rest = top_rows(oracle.feed(fed, all_rows=True))
    with open(out + ".part", "wb") as f:
        f.write(MAGIC)
        f.write(np.array([FORMAT_VERSION, N_TOKENS, N_TOP, oracle.n_vocab], "<u4").tobytes())
        for array in (np.array(fed, "<u4"), rest, ids, logprobs):
            f.write(array.tobytes())
    os.replace(out + ".part", out)
    nll = -np.mean([row[row_ids == t][0] for row, row_ids, t in zip(logprobs, ids, fed[1:]) if t in row_ids])
    print(f"{out}: {os.path.getsize(out)} bytes; mean -logprob of the next token where it is in the top: {nll:.4f}; "
          f"mean rest {rest.mean():.4f}")
    print("\n".join(oracle.log_lines("flash_attn", "Flash Attention", "K (f", "CPU_REPACK model")))
    oracle.close()


if __name__ == "__main__":
    if len(sys.argv) != 4 or "compare" != sys.argv[1] and sys.argv[3] not in ("f32", "q"):
        sys.exit(__doc__)
    if sys.argv[1] == "compare":
        compare(*sys.argv[2:])
    else:
        main(*sys.argv[1:])

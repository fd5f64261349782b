#!/usr/bin/env python3
"""kl.py MODEL.gguf OUT.bin f32|q: llama.cpp's predictions over 500 tokens of Moby Dick.

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


def compare(logprobs, rest, ids, other_rows):
    """Mean KL(this || other) and top-1 agreement, as the tests count them."""
    kl, same = [], 0
    for row_ids, row, tail, other in zip(ids, logprobs.astype(np.float64), rest.astype(np.float64), other_rows):
        q = other[row_ids]
        other_tail = max(1.0 - np.exp(q).sum(), 1e-12)
        kl.append((np.exp(row) * (row - q)).sum() + tail * (np.log(max(tail, 1e-12)) - np.log(other_tail)))
        same += int(other.argmax()) == row_ids[0]
    return np.mean(kl), same / len(ids)


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
    if len(sys.argv) != 4 or sys.argv[3] not in ("f32", "q"):
        sys.exit(__doc__)
    main(*sys.argv[1:])

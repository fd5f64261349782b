#!/usr/bin/env python3
"""kl.py MODEL.gguf OUT.bin f32|q [W]: llama.cpp's predictions over Moby Dick, 500 of them after W tokens (16 unless given).
   kl.py compare FILE.bin MODEL.gguf f32|q: the KL of testdata/tokens/README.md, from such a file to llama.cpp on MODEL.gguf.

f32: MODEL.gguf is the file rewritten by gguf_to_f32.py, F32 KV cache, flash attention off, no repacking.
q:   MODEL.gguf is the quantised file itself under llama.cpp's defaults (F16 KV cache).
W + 500 tokens are fed in one call. Of the predictions after each, the first W are left out; of the others the 256 best
tokens and the probability of the rest go into OUT.bin, as testdata/tokens/README.md sets out.
"""

import os
import sys

import llamacpp
import numpy as np

N_ROWS = 500
N_WARM_UP = 16
N_TOP = 256
N_CTX = 1024  # holds the tokens fed
MAGIC = b"HZKL"
FORMAT_VERSION = 2
EXACT = {"f32": True, "q": False}
MOBY = os.path.join(os.path.dirname(__file__), "../../testdata/tokens/moby.txt")


def top_rows(rows, n_warm_up):
    """ids u32 and logprobs f32, [N_ROWS, N_TOP], best first; rest f32, [N_ROWS], a probability."""
    ids, logprobs, rest = [], [], []
    for i, row in enumerate(rows):
        if i < n_warm_up:
            continue
        order = np.argsort(-row, kind="stable")
        ids.append(order[:N_TOP])
        logprobs.append(row[order[:N_TOP]])
        rest.append(np.exp(row[order[N_TOP:]]).sum())
    return np.array(ids, "<u4"), np.array(logprobs, "<f4"), np.array(rest, "<f4")


def read(path):
    """The tokens fed, the number of warm-up tokens, and rest, ids, logprobs of the rows after them."""
    with open(path, "rb") as f:
        raw = f.read()
    version, n_fed, n_warm_up, k, _ = (int(x) for x in np.frombuffer(raw, "<u4", 5, len(MAGIC)))
    if raw[: len(MAGIC)] != MAGIC or version != FORMAT_VERSION:
        raise SystemExit(f"{path}: not a file of this script")
    n, at = n_fed - n_warm_up, len(MAGIC) + 5 * 4
    fed = np.frombuffer(raw, "<u4", n_fed, at)
    rest = np.frombuffer(raw, "<f4", n, at + 4 * n_fed)
    ids = np.frombuffer(raw, "<u4", n * k, at + 4 * (n_fed + n)).reshape(n, k)
    logprobs = np.frombuffer(raw, "<f4", n * k, at + 4 * (n_fed + n + n * k)).reshape(n, k)
    return fed.tolist(), n_warm_up, rest.astype(np.float64), ids, logprobs.astype(np.float64)


def row_kl(rest, ids, p, row):
    """KL of one row in nats; row holds the other engine's log probabilities of the whole vocabulary."""
    q = row[ids]
    kl = (np.exp(p) * (p - q)).sum()
    return kl + rest * np.log(rest / max(1 - np.exp(q).sum(), 1e-12)) if rest > 0 else kl


def compare(path, model, kind):
    fed, n_warm_up, *oracle_rows = read(path)
    other = llamacpp.Oracle(model, N_CTX, EXACT[kind])
    rows = list(other.feed(fed, all_rows=True))[n_warm_up:]
    kl = [row_kl(rest, ids, p, row) for rest, ids, p, row in zip(*oracle_rows, rows)]
    n_same = sum(int(ids[0] == row.argmax()) for ids, row in zip(oracle_rows[1], rows))
    other.close()
    worst = int(np.argmax(kl))
    print(f"KL({path} || {model} {kind}): mean {np.mean(kl):.2e}, first row ({n_warm_up}) {kl[0]:.2e}, "
          f"largest {kl[worst]:.2e} (row {n_warm_up + worst}); top-1 agreement {n_same / len(kl):.1%}")


def main(model, out, kind, n_warm_up=N_WARM_UP):
    with open(MOBY, encoding="utf-8") as f:
        moby = f.read()
    oracle = llamacpp.Oracle(model, N_CTX, EXACT[kind])
    fed = oracle.tokenize(moby, True, False)[: n_warm_up + N_ROWS]
    ids, logprobs, rest = top_rows(oracle.feed(fed, all_rows=True), n_warm_up)
    with open(out + ".part", "wb") as f:
        f.write(MAGIC)
        f.write(np.array([FORMAT_VERSION, len(fed), n_warm_up, N_TOP, oracle.n_vocab], "<u4").tobytes())
        for array in (np.array(fed, "<u4"), rest, ids, logprobs):
            f.write(array.tobytes())
    os.replace(out + ".part", out)
    after = fed[n_warm_up + 1 :]
    nll = -np.mean([row[row_ids == t][0] for row, row_ids, t in zip(logprobs, ids, after) if t in row_ids])
    print(f"{out}: {os.path.getsize(out)} bytes; mean -logprob of the next token where it is in the top: {nll:.4f}; "
          f"mean rest {rest.mean():.4f}")
    print("\n".join(oracle.log_lines("flash_attn", "Flash Attention", "K (f", "CPU_REPACK model")))
    oracle.close()


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if len(arguments) == 4 and arguments[0] == "compare" and arguments[3] in EXACT:
        compare(*arguments[1:])
    elif len(arguments) == 3 and arguments[2] in EXACT:
        main(*arguments)
    elif len(arguments) == 4 and arguments[2] in EXACT and arguments[3].isdigit():
        main(*arguments[:3], int(arguments[3]))
    else:
        sys.exit(__doc__)

#!/usr/bin/env python3
"""tokens.py QUANTISED.gguf F32.gguf OUT.json: greedy tokens of llama.cpp as a fixture for the decoder.

F32.gguf is QUANTISED.gguf after gguf_to_f32.py. Each prompt is tokenised by llama.cpp, fed in one call to a sequence of
its own, and followed by 64 greedy tokens; end-of-generation tokens do not stop it. A place where the two best tokens lie closer
than 0.02 nats is a near tie: another correct engine may choose the other token there, and must then go on with ours.
A prompt with more than two near ties is left out and named. The format is in testdata/tokens/README.md.
"""

import hashlib
import json
import os
import sys

import jinja2
import jinja2.sandbox
import llamacpp
import numpy as np
import prompts

N_GREEDY = 64
NEAR_TIE_NATS = 0.02
N_NEAR_TIES_MAX = 2
N_CTX = 1024  # holds the longest prompt and its 64 tokens
N_PROMPTS_MAX = 16
NOISE_IDS_MAX = 128  # only shorter prompts are fed a second time
MOBY = os.path.join(os.path.dirname(__file__), "../../testdata/tokens/moby.txt")


def render(template, messages):
    """The settings of transformers' apply_chat_template."""
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    return env.from_string(template).render(messages=messages, add_generation_prompt=True)


def run_prompts(oracle, all_ids):
    """All prompts side by side, one sequence each: the weights are read once a step for all of them."""
    runs = [{"tokens": [], "second": [], "logprob": [], "gap": []} for _ in all_ids]
    rows = [oracle.feed(ids, seq) for seq, ids in enumerate(all_ids)]
    for step in range(N_GREEDY):
        for run, row in zip(runs, rows):
            best, second = (int(t) for t in np.argsort(-row, kind="stable")[:2])
            run["tokens"].append(best)
            run["second"].append(second)
            run["logprob"].append(round(float(row[best]), 5))
            run["gap"].append(round(float(row[best] - row[second]), 5))
        if step + 1 < N_GREEDY:
            rows = oracle.step([run["tokens"][-1] for run in runs])
    for run in runs:
        run["near_ties"] = [i for i, gap in enumerate(run["gap"]) if gap < NEAR_TIE_NATS]
        run["eog"] = [i for i, token in enumerate(run["tokens"]) if oracle.is_eog(token)]
    return runs


def own_noise(oracle, ids, run):
    """The same tokens alone and in one call: how far the oracle is from itself, and whether it chooses the same tokens."""
    oracle.reset()
    fed = ids + run["tokens"][:-1]
    rows = list(oracle.feed(fed, all_rows=True))[len(ids) - 1 :]
    worst = max(abs(float(row[t]) - lp) for row, t, lp in zip(rows, run["tokens"], run["logprob"]))
    parted = [i for i, row in enumerate(rows) if int(row.argmax()) != run["tokens"][i]]
    return worst, parted


def collect(template):
    """(name, text, messages or None) in the order of the fixture."""
    with open(MOBY, encoding="utf-8") as f:
        moby = f.read()
    plain, chat = prompts.long_prompts(moby, template is not None)
    for name, text in {**prompts.PLAIN, **plain}.items():
        yield name, text, None
    if template is not None:
        for name, messages in {**prompts.CHAT, **chat}.items():
            yield name, render(template, messages), messages


def tokenizer_cases(oracle):
    for text, parse_special in prompts.TOKENIZER:
        for add_special in (False, True):
            ids = oracle.tokenize(text, add_special, parse_special)
            yield {"text": text, "add_special": add_special, "parse_special": parse_special, "ids": ids}


def greedy_answer(path, template, question, n_max):
    """The quantised file under llama.cpp's defaults, stopping at the end token: a plain sanity check."""
    oracle = llamacpp.Oracle(path, N_CTX, exact=False)
    text = render(template, [{"role": "user", "content": question}])
    logprobs = oracle.feed(oracle.tokenize(text, True, True))
    out = []
    while len(out) < n_max and not oracle.is_eog(int(logprobs.argmax())):
        out.append(int(logprobs.argmax()))
        logprobs = oracle.feed([out[-1]])
    answer = oracle.text(out)
    oracle.close()
    return answer


def sha256(path):
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def dump(fixture, path):
    """JSON with one key a line and each array on its line, so that a diff is readable."""
    def one(value):
        return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))

    lines = ["{"]
    for key, value in fixture.items():
        if isinstance(value, list):
            lines.append(f"  {one(key)}: [")
            for item in value:
                fields = ",\n".join(f"      {one(k)}: {one(v)}" for k, v in item.items())
                lines.append("    {\n" + fields + "\n    },")
            lines[-1] = lines[-1].rstrip(",")
            lines.append("  ],")
        else:
            lines.append(f"  {one(key)}: {one(value)},")
    lines[-1] = lines[-1].rstrip(",")
    lines.append("}")
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")


def report(oracle, prompt, run):
    """One line a prompt; stops where the oracle disagrees with itself outside the near ties."""
    ids, noise = prompt["prompt_ids"], ""
    if len(ids) < NOISE_IDS_MAX:
        worst, parted = own_noise(oracle, ids, run)
        noise = f", own noise {worst:.1e} nats, parted {parted}"
        if not set(parted) <= set(run["near_ties"]):
            raise SystemExit(f"{prompt['name']}: the oracle parts from itself outside the near ties")
    print(f"{prompt['name']}: {len(ids)} ids, near ties {run['near_ties']}, least gap {min(run['gap'])}, "
          f"eog {run['eog']}{noise}: {oracle.text(run['tokens'])!r}", flush=True)


def main(quantised, f32, out):
    oracle = llamacpp.Oracle(f32, N_CTX, exact=True, n_seqs=N_PROMPTS_MAX)
    template = oracle.chat_template()
    asked = []
    for name, text, messages in collect(template):
        head = {"name": name, "text": text} if messages is None else {"name": name, "text": text, "messages": messages}
        ids = oracle.tokenize(text, True, messages is not None)
        asked.append({**head, "parse_special": messages is not None, "prompt_ids": ids})
    runs = run_prompts(oracle, [prompt["prompt_ids"] for prompt in asked])
    kept, left_out = [], []
    for prompt, run in zip(asked, runs):
        report(oracle, prompt, run)
        if len(run["near_ties"]) > N_NEAR_TIES_MAX:
            left_out.append(prompt["name"])
        else:
            kept.append({**prompt, **run})
    fixture = {
        "model": os.path.basename(quantised),
        "sha256": sha256(quantised),
        "oracle": f"{llamacpp.WHEEL} {llamacpp.VERSION}, F32 weights, F32 KV cache, flash attention off, "
                  f"no repacking, {llamacpp.N_THREADS} threads",
        "command": "tools/oracle/tokens.py (see README.md)",
        "n_vocab": oracle.n_vocab,
        "add_special": True,
        "add_bos": oracle.lib.llama_vocab_get_add_bos(oracle.vocab),
        "add_eos": oracle.lib.llama_vocab_get_add_eos(oracle.vocab),
        "bos": oracle.lib.llama_vocab_bos(oracle.vocab),
        "near_tie_nats": NEAR_TIE_NATS,
        "left_out": ", ".join(left_out),
        "prompts": kept,
        "tokenizer": list(tokenizer_cases(oracle)),
    }
    print("\n".join(oracle.log_lines("type  f32", "flash_attn", "K (f", "CPU_REPACK model")))
    dump(fixture, out)
    oracle.close()
    if template is not None:
        print("quantised file:", repr(greedy_answer(quantised, template, "What is the capital of France?", 64)))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])

#!/usr/bin/env python3
"""Writes testdata/golden/samplers/: what numpy makes of each sampler, on random logits and on odd ones.

Every sampler is written here from its paper or definition, in a few lines, in double precision unless the definition is
about the logits themselves (float32). Nothing is taken from the Rust code; Philox is written from its paper and checked
against the vectors of its authors.

  chains.json     one step: settings (as on the command line), history, logits (bits of float32), and the distribution
                  that a token is drawn from, as [id, probability] in the order of the draw
  sequences.json  many steps: settings, logits of each step, and the ids drawn with a seed

Usage: samplers.py      (needs numpy)
"""

import json
import pathlib

import numpy as np

OUT = pathlib.Path(__file__).resolve().parents[2] / "testdata" / "golden" / "samplers"
DEFAULTS = {
    "temp": 0.8, "top-k": 40, "top-p": 0.95, "min-p": 0.05, "typical-p": 1.0, "top-n-sigma": -1.0, "repeat-penalty": 1.0,
    "repeat-last-n": 64, "presence-penalty": 0.0, "frequency-penalty": 0.0, "dry-multiplier": 0.0, "dry-base": 1.75,
    "dry-allowed-length": 2, "dry-penalty-last-n": 64, "dry-sequence-breaker": ["\n", ":", "\"", "*"], "xtc-probability": 0.0,
    "xtc-threshold": 0.1, "mirostat": 0, "mirostat-lr": 0.1, "mirostat-ent": 5.0, "dynatemp-range": 0.0, "dynatemp-exp": 1.0,
    "logit-bias": [], "seed": 0,
    "samplers": "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature",
}
# Settings are float32 in the program.
f32 = np.float32
# The text of each token: 0..25 are letters, then punctuation, then pairs.
PIECES = [chr(97 + i) for i in range(26)] + ["\n", ":", "\"", "*", " ", ".", "\n\n", "x:", "-*-", "ab"]


def piece(token):
    return PIECES[token] if token < len(PIECES) else f"<{token}>"


def philox(counter, key):
    c, k = [int(x) for x in counter], [int(x) for x in key]
    for _ in range(10):
        p, q = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(q >> 32) ^ c[1] ^ k[0], q & 0xFFFFFFFF, (p >> 32) ^ c[3] ^ k[1], p & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def check_philox():
    for counter, key, out in [
        ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ]:
        words = lambda text: [int(w, 16) for w in text.split()]
        assert philox(words(counter), words(key)) == words(out)


def uniform(seed, token_idx, purpose):
    low, high = token_idx & 0xFFFFFFFF, token_idx >> 32
    a, b, _, _ = philox([low, high, purpose, 0], [seed & 0xFFFFFFFF, seed >> 32])
    return float(((b << 32 | a) >> 11) / 2**53)


def softmax(logits):
    with np.errstate(under="ignore"):
        e = np.exp(logits.astype(np.float64) - float(logits.max()))
    return e / e.sum()


class Step:
    """Candidates: ids and float32 logits, in the order of a draw."""

    def __init__(self, logits, history, settings, seed, token_idx):
        with np.errstate(invalid="ignore"):
            logits = np.minimum(np.asarray(logits, f32), np.finfo(f32).max)
        self.ids = np.arange(len(logits))
        self.logits = logits
        self.history, self.s, self.seed, self.token_idx = history, settings, seed, token_idx
        self.clean(0, f32(0))

    def clean(self, spare_id, spare_logit):
        """Drops what has no probability; never drops all."""
        logits = np.minimum(self.logits, np.finfo(f32).max)
        good = ~np.isnan(logits) & (logits != -np.inf)
        self.ids, self.logits = self.ids[good], logits[good]
        if len(self.ids) == 0:
            self.ids, self.logits = np.array([spare_id]), np.array([spare_logit], f32)

    def changed(self, logits):
        best = self.order()[0]
        spare = self.ids[best], self.logits[best]
        self.logits = logits.astype(f32)
        self.clean(*spare)

    def order(self):
        return np.lexsort((self.ids, -self.logits.astype(np.float64)))

    def take(self, idx):
        self.ids, self.logits = self.ids[idx], self.logits[idx]

    def sort(self):
        self.take(self.order())

    def bias(self):
        logits = self.logits.copy()
        for token, bias in self.s["logit-bias"]:
            logits[self.ids == token] += f32(bias)
        self.changed(logits)

    def penalties(self):
        s = self.s
        last = window(self.history, s["repeat-last-n"])
        if not last or (s["repeat-penalty"] == 1 and s["presence-penalty"] == 0 and s["frequency-penalty"] == 0):
            return
        count = np.array([last.count(i) for i in self.ids], f32)
        r = f32(s["repeat-penalty"])
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = np.where(self.logits <= 0, self.logits * r, self.logits / r)
            scaled = scaled - (count * f32(s["frequency-penalty"]) + f32(s["presence-penalty"]))
        self.changed(np.where(count > 0, scaled, self.logits))

    def dry(self):
        s = self.s
        w = window(self.history, s["dry-penalty-last-n"])
        if s["dry-multiplier"] == 0 or not w:
            return
        breakers = s["dry-sequence-breaker"]
        # The token in which the last breaker ends bounds the repetition.
        text, ends = "", []
        for token in w:
            text += piece(token)
            ends.append(len(text))
        last = max([text.rfind(b) + len(b) for b in breakers if b in text], default=0)
        bound = len(w) - (next(i for i, e in enumerate(ends) if e >= last) + 1 if last else 0)
        if bound < s["dry-allowed-length"]:
            return
        longest = {}
        for end in range(len(w) - 1):
            n = 0
            while n <= end and w[end - n] == w[len(w) - 1 - n]:
                n += 1
            n = min(n, bound)
            if n >= s["dry-allowed-length"]:
                longest[w[end + 1]] = max(n, longest.get(w[end + 1], 0))
        logits = self.logits.copy()
        base, multiplier = float(f32(s["dry-base"])), float(f32(s["dry-multiplier"]))
        limit = int(88.7228391 / np.log(base)) if base > 1.000001 else 10**9
        for i, token in enumerate(self.ids):
            if token in longest and not any(b in piece(token) for b in breakers):
                logits[i] -= f32(multiplier * base ** min(longest[token] - s["dry-allowed-length"], limit))
        self.changed(logits)

    def top_n_sigma(self):
        n = float(f32(self.s["top-n-sigma"]))
        if n > 0 and len(self.ids) > 1:
            x = self.logits.astype(np.float64)
            self.take(x >= x.max() - n * x.std())

    def top_k(self):
        if self.s["top-k"] > 0:
            self.sort()
            self.take(slice(0, self.s["top-k"]))

    def typ_p(self):
        p = float(f32(self.s["typical-p"]))
        if p >= 1:
            return
        self.sort()
        x = self.logits.astype(np.float64)
        log_q = (x - x.max()) - np.log(np.exp(x - x.max()).sum())
        q = softmax(self.logits)
        entropy = -(q * log_q).sum()
        nearest = np.argsort(np.abs(-log_q - entropy), kind="stable")
        n = int(np.searchsorted(np.cumsum(q[nearest]), p, side="right")) + 1
        self.take(np.sort(nearest[:n]))

    def top_p(self):
        p = float(f32(self.s["top-p"]))
        if p >= 1:
            return
        self.sort()
        n = int(np.searchsorted(np.cumsum(softmax(self.logits)), p, side="left")) + 1
        self.take(slice(0, n))

    def min_p(self):
        p = float(f32(self.s["min-p"]))
        if p > 0:
            self.take(self.logits.astype(np.float64) >= float(self.logits.max()) + np.log(p))

    def xtc(self):
        s = self.s
        if s["xtc-probability"] <= 0 or s["xtc-threshold"] > 0.5 or len(self.ids) < 2:
            return
        if uniform(self.seed, self.token_idx, 1) >= float(f32(s["xtc-probability"])):
            return
        self.sort()
        n_top = int((softmax(self.logits) >= float(f32(s["xtc-threshold"]))).sum())
        self.take(slice(max(n_top - 1, 0), None))

    def temperature(self):
        s = self.s
        temp = f32(s["temp"])
        if s["dynatemp-range"] > 0:
            if len(self.ids) < 2:
                return
            self.sort()
            q = softmax(self.logits)
            entropy = -sum(p * np.log(p) for p in q if p > 0)
            share = min(max(entropy / np.log(len(q)), 0.0), 1.0)
            low = max(0.0, float(temp) - float(f32(s["dynatemp-range"])))
            high = float(temp) + float(f32(s["dynatemp-range"]))
            temp = f32(low + (high - low) * share ** float(f32(s["dynatemp-exp"])))
        if temp <= 0:
            self.take(self.order()[:1])
            return
        with np.errstate(over="ignore"):
            top = self.logits.max()
            shift = f32(0) if np.isfinite(top / temp) else top
            if temp != 1:
                self.changed((self.logits - shift) / temp)

    def draw(self):
        x = self.logits.astype(np.float64)
        weights = np.exp(x - x.max())
        target = uniform(self.seed, self.token_idx, 0) * weights.cumsum()[-1]
        return int(np.searchsorted(weights.cumsum(), target, side="right"))


def window(history, n):
    return list(history) if n < 0 else (history[-n:] if n else [])


def settings_of(given):
    s = dict(DEFAULTS)
    s.update(given)
    return s


def narrow(logits, history, s, token_idx, mu):
    step = Step(logits, history, s, s["seed"], token_idx)
    step.bias()
    if s["mirostat"] == 0:
        for name in s["samplers"].split(";"):
            getattr(step, name)()
        return step
    step.s = settings_of({"temp": s["temp"]})
    step.temperature()
    step.sort()
    if s["mirostat"] == 1:
        x = step.logits.astype(np.float64)[:100]
        t = np.log(np.arange(2, len(x) + 1) / np.arange(1, len(x)))
        with np.errstate(all="ignore"):
            exponent = np.float64((t * (x[:-1] - x[1:])).sum()) / np.float64((t * t).sum())
            eps = exponent - 1
            k = np.power(eps * 2.0**mu / (1 - np.power(float(len(logits)), -eps)), 1 / exponent)
        step.take(slice(0, 1 if np.isnan(k) else int(np.clip(k, 1, 10**9))))
    else:
        with np.errstate(divide="ignore"):
            surprise = -np.log2(softmax(step.logits))
        step.take(slice(0, max(1, int((surprise <= mu).sum()))))
    return step


def run(given, prompt, steps):
    s = settings_of(given)
    mu = 2 * float(f32(s["mirostat-ent"]))
    history, drawn = list(prompt), []
    for token_idx, logits in enumerate(steps):
        step = narrow(logits, history, s, token_idx, mu)
        idx = step.draw()
        surprise = -np.log2(softmax(step.logits)[idx])
        mu -= float(f32(s["mirostat-lr"])) * (surprise - float(f32(s["mirostat-ent"])))
        history.append(int(step.ids[idx]))
        drawn.append(history[-1])
    return drawn


def bits(logits):
    return [int(x) for x in np.asarray(logits, f32).view(np.uint32)]


def flags(given):
    """The settings as words of the command line."""
    out = {}
    for name, value in given.items():
        if name == "logit-bias":
            out[name] = [f"{t}{b:+}" for t, b in value]
        elif name == "dry-sequence-breaker":
            out[name] = value or ["none"]
        else:
            out[name] = [str(value)]
    return out


def odd_logits(rng):
    """Kinds of logits, by name."""
    normal = rng.normal(0, 3, 60).astype(f32)
    holes = normal.copy()
    holes[[0, 5, 6, 59]] = -np.inf
    nans = normal.copy()
    nans[[1, 2, 40]] = np.nan
    nans[7] = -np.inf
    huge = (rng.normal(0, 1, 40) * 1e38).astype(f32)
    infinite = normal.copy()
    infinite[[3, 9]] = np.inf
    return {
        "normal": normal,
        "wide": rng.normal(0, 30, 120).astype(f32),
        "narrow": rng.normal(0, 0.1, 64).astype(f32),
        "large": rng.normal(0, 2, 1200).astype(f32),
        "ties": rng.integers(-2, 3, 48).astype(f32),
        "equal": np.full(32, -1.5, f32),
        "zeros": np.array([0.0, -0.0] * 8, f32),
        "one": np.array([2.5], f32),
        "two": np.array([-1.0, 1.0], f32),
        "holes": holes,
        "nans": nans,
        "huge": huge,
        "infinite": infinite,
        "hopeless": np.full(5, -np.inf, f32),
        "one left": np.array([-np.inf, np.nan, 3.0, -np.inf], f32),
        "peak": np.array([50.0] + [0.0] * 30, f32),
    }


ALONE = {
    "top_k": [{"top-k": k} for k in (0, 1, 2, 5, 40, 10_000)],
    "top_p": [{"top-p": p} for p in (0, 0.1, 0.51, 0.9, 0.999, 1)],
    "min_p": [{"min-p": p} for p in (0, 0.001, 0.05, 0.5, 1)],
    "typ_p": [{"typical-p": p} for p in (0, 0.2, 0.61, 0.95, 1)],
    "top_n_sigma": [{"top-n-sigma": n} for n in (-1, 0, 0.3, 1, 2.5, 100)],
    "xtc": [{"xtc-probability": 1, "xtc-threshold": t} for t in (0, 0.03, 0.1, 0.4, 0.5, 0.51, 1)],
    "temperature": [{"temp": t} for t in (0.01, 0.8, 1, 2, 1e-30, 100000)]
    + [{"temp": t, "dynatemp-range": r, "dynatemp-exp": e} for t, r, e in [(0.8, 0.5, 1), (1, 2, 0.5), (0.5, 0.5, 3), (1, 0.3, 0)]],
    "penalties": [
        {"repeat-penalty": 1.3}, {"repeat-penalty": 0.7, "repeat-last-n": 3}, {"presence-penalty": 1.5}, {"frequency-penalty": 0.4},
        {"repeat-penalty": 1.1, "presence-penalty": -2, "frequency-penalty": 0.3, "repeat-last-n": -1},
        {"repeat-penalty": 2, "repeat-last-n": 0}, {"repeat-penalty": 1000000, "frequency-penalty": -1000000},
    ],
    "dry": [
        {"dry-multiplier": 0.8}, {"dry-multiplier": 0.8, "dry-base": 1, "dry-allowed-length": 1}, {"dry-multiplier": 5, "dry-allowed-length": 0},
        {"dry-multiplier": 2, "dry-sequence-breaker": []}, {"dry-multiplier": 2, "dry-sequence-breaker": ["ca", "aab"], "dry-allowed-length": 1},
        {"dry-multiplier": 1, "dry-penalty-last-n": 6, "dry-allowed-length": 1}, {"dry-multiplier": 1, "dry-penalty-last-n": -1},
        {"dry-multiplier": 3, "dry-base": 1000000, "dry-penalty-last-n": -1, "dry-sequence-breaker": []}, {"dry-multiplier": 1, "dry-penalty-last-n": 0},
    ],
}
CHAINS = [
    {}, {"temp": 1.5, "top-k": 0}, {"top-k": 0, "top-p": 1, "min-p": 0, "temp": 1}, {"typical-p": 0.9, "top-n-sigma": 2},
    {"samplers": "temperature;min_p;top_p;top_k"}, {"samplers": "top_k;temperature;penalties", "repeat-penalty": 1.2},
    {"logit-bias": [(0, 3.0), (1, float("-inf")), (2, -0.5), (2, -0.5), (4, 1.25)]},
    {"logit-bias": [(2, float("inf"))], "top-k": 3}, {"xtc-probability": 0.5, "xtc-threshold": 0.05, "seed": 3},
    {"repeat-penalty": 1.1, "frequency-penalty": 0.2, "dry-multiplier": 0.8, "dry-allowed-length": 1, "temp": 1},
    {"dynatemp-range": 0.4, "dynatemp-exp": 1.5, "top-k": 0},
    {"mirostat": 1}, {"mirostat": 1, "mirostat-ent": 2, "temp": 1}, {"mirostat": 2}, {"mirostat": 2, "mirostat-ent": 0.5, "temp": 1.3},
]
HISTORIES = [[], [0, 1, 2, 0, 1], [3, 0, 0, 1, 27, 3, 0, 0, 1, 4, 3, 0, 0], [2, 0, 35, 7, 2, 0, 35, 2, 0, 35], [0] * 80, [26, 0, 1, 26, 0, 1, 0, 1]]


def main():
    check_philox()
    rng = np.random.default_rng(20260)
    kinds = odd_logits(rng)
    cases = []
    for kind, logits in kinds.items():
        chains = [{"samplers": name, **given} for name, all_given in ALONE.items() for given in all_given] + CHAINS
        for given in chains:
            names = settings_of(given)["samplers"]
            looks_back = any(n in names for n in ("penalties", "dry")) and any(k.startswith(("dry", "rep", "fre", "pre")) for k in given)
            for history in HISTORIES if looks_back and kind in ("normal", "ties", "nans") else HISTORIES[2:3]:
                given = {"temp": 0.8, **given}
                step = narrow(logits, history, settings_of(given), 0, 2 * float(f32(settings_of(given)["mirostat-ent"])))
                q = softmax(step.logits)
                if kind == "large" and len(q) > 60:
                    continue  # to keep the file small; "wide" and CHAINS have enough of them
                cases.append({"logits": kind, "set": flags(given), "history": history,
                              "out": [[int(i), float(f"{p:.9g}")] for i, p in zip(step.ids, q)]})
    OUT.mkdir(parents=True, exist_ok=True)
    head = json.dumps({k: bits(v) for k, v in kinds.items()}, separators=(",", ":"))
    lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
    (OUT / "chains.json").write_text(f'{{"logits":{head},\n"cases":[\n{lines}\n]}}\n')

    steps = [rng.normal(0, 2.5, 40).astype(f32) for _ in range(64)]
    sequences = []
    for given in CHAINS + [{"xtc-probability": 0.5, "xtc-threshold": 0.02, "top-k": 0, "min-p": 0, "temp": 1.2}]:
        for seed in (0, 1, 2**63 + 12345):
            given = {"temp": 0.8, **given, "seed": seed}
            sequences.append({"set": flags(given), "prompt": HISTORIES[1], "out": run(given, HISTORIES[1], steps)})
    lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in sequences)
    steps = json.dumps([bits(x) for x in steps], separators=(",", ":"))
    (OUT / "sequences.json").write_text(f'{{"steps":{steps},\n"cases":[\n{lines}\n]}}\n')
    print(len(cases), "steps,", len(sequences), "sequences")


if __name__ == "__main__":
    main()

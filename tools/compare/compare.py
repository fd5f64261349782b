#!/usr/bin/env python3
"""Hanzo and llama.cpp on one machine in one run: alternated rounds, and the ratio of their speeds.

    python3 tools/compare/compare.py --llama-bench PATH MODEL.gguf ...

Builds nothing. A round runs `hanzo bench` and `llama-bench` once each on the same model with the same number of threads; the
next round runs them in the other order. llama.cpp is measured with flash attention off and on, and the better of the two
counts, chosen for each test by its median. A round in which other programs used the machine is thrown away and made again.
Standard library only; README.md in this folder says how to build the peer and what the columns mean.
"""

import argparse
import dataclasses
import json
import os
import resource
import statistics
import subprocess
import sys

# Columns of the first line of /proc/stat: user nice system idle iowait irq softirq steal; the rest is part of user.
STAT_COLUMNS = 8
IDLE_COLUMNS = (3, 4)


@dataclasses.dataclass
class Model:
    """What a token costs at least."""

    name: str
    decode_bytes: int  # weights that one token of decode reads
    prefill_ops: int  # multiplications and additions of one token of a prompt, without attention and the head
    float_ops: int = 0  # those of them whose weights are plain numbers


@dataclasses.dataclass
class Limits:
    """What the machine can do, as `hanzo devices --measure` found."""

    threads: int
    read_bytes_per_s: float
    int8_ops_per_s: float | None
    f32_ops_per_s: float


@dataclasses.dataclass
class Round:
    """Tokens a second of one round."""

    ours: dict  # test -> tokens a second
    peer: dict  # (test, flash attention) -> tokens a second
    others: float  # share of the machine that other programs used
    ours_first: bool


@dataclasses.dataclass
class Row:
    """The comparison of one test."""

    model: str
    test: str
    ours: float
    peer: float
    flash_attention: int
    ratios: list
    ratio: float
    limit: str | None = None
    ours_share: float | None = None
    peer_share: float | None = None


# Weights of these types are multiplied in f32, those of all others in 8 bits where the processor can.
PLAIN = {"F32", "F16", "BF16", "F64"}


def bytes_and_ops(tensors, metadata):
    """Weight bytes that a token of decode reads, operations of a token of a prompt, and those of them whose weights are plain
    numbers, from the tensors of a GGUF file.

    Of the embedding table one row is read, unless the head is the same table. Of the experts only the used ones are.
    """
    values = {e["key"]: e.get("value") for e in metadata}
    arch = values.get("general.architecture")
    experts, used = (values.get(f"{arch}.expert_{what}count") for what in ("", "used_"))
    tied = all(t["name"] != "output.weight" for t in tensors)
    n_bytes = n_ops = n_float_ops = 0.0
    for t in tensors:
        name, elems = t["name"], 1
        for d in t["shape"]:
            elems *= d
        share = used / experts if "_exps." in name and experts and used else 1.0
        if name == "token_embd.weight" and not tied:
            continue
        n_bytes += share * t["bytes"]
        if len(t["shape"]) > 1 and name not in ("token_embd.weight", "output.weight"):
            n_ops += share * 2 * elems
            n_float_ops += share * 2 * elems * (t["type"] in PLAIN)
    return round(n_bytes), round(n_ops), round(n_float_ops)


def kept_rounds(rounds, others_max):
    """The rounds that other programs did not disturb."""
    return [r for r in rounds if r.others <= others_max]


def better_flash_attention(rounds, test):
    """The setting with the higher median speed; off if they are equal."""
    settings = sorted({fa for (t, fa) in rounds[0].peer if t == test})
    return max(settings, key=lambda fa: (statistics.median(r.peer[test, fa] for r in rounds), -fa))


def compare(model, rounds, limits):
    """One row for each test that both programs made."""
    tests = [t for t in rounds[0].ours if any(t == p for (p, _) in rounds[0].peer)]
    return [compare_test(model, rounds, limits, test) for test in tests]


def compare_test(model, rounds, limits, test):
    fa = better_flash_attention(rounds, test)
    ratios = [r.ours[test] / r.peer[test, fa] for r in rounds]
    row = Row(
        model=model.name,
        test=test,
        ours=statistics.median(r.ours[test] for r in rounds),
        peer=statistics.median(r.peer[test, fa] for r in rounds),
        flash_attention=fa,
        ratios=ratios,
        ratio=statistics.median(ratios),
    )
    if limits and test.startswith("tg"):
        row.limit, cost, limit = "memory", model.decode_bytes, limits.read_bytes_per_s
    elif limits and test.startswith("pp"):
        in_floats = not limits.int8_ops_per_s or 2 * model.float_ops > model.prefill_ops
        row.limit, limit = ("f32", limits.f32_ops_per_s) if in_floats else ("int8", limits.int8_ops_per_s)
        cost = model.prefill_ops
    if row.limit:
        row.ours_share, row.peer_share = row.ours * cost / limit, row.peer * cost / limit
    return row


def test_name(row):
    """`pp512`, `tg64 @ d4096`: the same for the rows of both programs."""
    name = f"tg{row['n_gen']}" if row["n_gen"] else f"pp{row['n_prompt']}"
    return f"{name} @ d{row['n_depth']}" if row.get("n_depth") else name


def processor_seconds():
    """(busy, all) of all processors in seconds, or None where there is no /proc/stat."""
    try:
        with open("/proc/stat", encoding="ascii") as stat:
            ticks = [int(t) for t in stat.readline().split()[1 : 1 + STAT_COLUMNS]]
    except (OSError, ValueError):
        return None
    total, idle = sum(ticks), sum(ticks[i] for i in IDLE_COLUMNS)
    hertz = os.sysconf("SC_CLK_TCK")
    return (total - idle) / hertz, total / hertz


def own_seconds():
    """Processor seconds of this process and of the children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in usages)


class Watch:
    """Share of the machine that others use while it is open."""

    def __init__(self):
        self.start = processor_seconds(), own_seconds()

    def others(self):
        before, own = self.start
        after = processor_seconds()
        if before is None or after is None:
            return 0.0
        return others_share(before, after, own_seconds() - own)


def others_share(before, after, own):
    """Share of all processor time between two readings that was busy and not our own; ticks are coarse, so at least 0."""
    busy, total = after[0] - before[0], after[1] - before[1]
    return max(0.0, busy - own) / total if total > 0 else 0.0


def output_of(command):
    """The JSON that a program prints."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        last = "\n".join(done.stderr.strip().splitlines()[-5:])
        sys.exit(f"error: {' '.join(command)} ended with {done.returncode}\n{last}")
    return json.loads(done.stdout)


def make_round(args, model, ours_first):
    common = ["-m", model, "-p", args.n_prompt, "-n", args.n_gen, "-t", str(args.threads), "-r", "1", "-o", "json"]
    ours = [args.hanzo, "bench", *common, *args.hanzo_args.split()]
    peer = [args.llama_bench, *common, "-fa", "0,1", *args.peer_args.split()]
    watch = Watch()
    if ours_first:
        ours, peer = output_of(ours), output_of(peer)
    else:
        peer, ours = output_of(peer), output_of(ours)
    return Round(
        ours={test_name(r): r["avg_ts"] for r in ours},
        peer={(test_name(r), int(r["flash_attn"])): r["avg_ts"] for r in peer},
        others=watch.others(),
        ours_first=ours_first,
    )


def measure(args, model):
    """The undisturbed rounds of a model, in balanced order."""
    kept = []
    for attempt in range(args.tries):
        made = make_round(args, model, ours_first=len(kept) % 2 == 0)
        good = bool(kept_rounds([made], args.others / 100))
        kept += [made] * (good or args.keep_all)
        note = "" if good else " (disturbed)"
        print(f"{os.path.basename(model)}: try {attempt + 1}, others {made.others:.1%}{note}", file=sys.stderr)
        if len(kept) == args.rounds:
            break
    return kept


def look_at(args, path):
    found = output_of([args.hanzo, "inspect", path, "--json"])
    return Model(os.path.basename(path).removesuffix(".gguf"), *bytes_and_ops(found["tensors"], found["metadata"]))


def look_at_machine(args):
    """Its limits with the threads of the run, and sets the threads where none are given."""
    cpu = output_of([args.hanzo, "devices", "--measure", "--json"])[0]
    args.threads = args.threads or cpu["threads"]
    fitting = [m for m in cpu["measured"] if m["threads"] == args.threads]
    found = (fitting or cpu["measured"])[-1]
    return Limits(**{f.name: found[f.name] for f in dataclasses.fields(Limits)}), cpu


def percent(share):
    return "" if share is None else f"{share:.0%}"


def table(rows):
    names = ["model", "test", "Hanzo", "llama.cpp", "flash attention", "ratio", "range", "rounds", "limit", "Hanzo", "llama.cpp"]
    lines = [names, ["---"] * 2 + ["---:"] * 2 + ["---"] + ["---:"] * 3 + ["---"] + ["---:"] * 2]
    for r in rows:
        lines.append([
            r.model, r.test, f"{r.ours:.1f}", f"{r.peer:.1f}", "on" if r.flash_attention else "off", f"{r.ratio:.2f}",
            f"{min(r.ratios):.2f} to {max(r.ratios):.2f}", str(len(r.ratios)), r.limit or "",
            percent(r.ours_share), percent(r.peer_share),
        ])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("models", nargs="+", metavar="MODEL.gguf")
    parser.add_argument("--llama-bench", required=True, metavar="PATH")
    parser.add_argument("--hanzo", default="target/release/hanzo", metavar="PATH")
    parser.add_argument("-r", "--rounds", type=int, default=5, help="undisturbed rounds of a model (default: 5)")
    parser.add_argument("--tries", type=int, help="rounds to make at most (default: four times as many)")
    parser.add_argument("-t", "--threads", type=int, help="threads of both (default: Hanzo's default)")
    parser.add_argument("-p", "--n-prompt", default="512", metavar="N,…")
    parser.add_argument("-n", "--n-gen", default="64", metavar="N,…")
    parser.add_argument("--others", type=float, default=4.0, metavar="PERCENT", help="what others may use (default: 4)")
    parser.add_argument("--keep-all", action="store_true", help="count disturbed rounds too")
    parser.add_argument("--hanzo-args", default="", metavar="TEXT", help="more arguments for hanzo bench")
    parser.add_argument("--peer-args", default="", metavar="TEXT", help="more arguments for llama-bench")
    parser.add_argument("--json", action="store_true", help="print JSON, every round included")
    args = parser.parse_args(argv)
    if args.rounds < 1:
        parser.error("--rounds is 1 or more")
    args.tries = args.tries or 4 * args.rounds
    return args


def main(argv=None):
    args = arguments(argv)
    limits, cpu = look_at_machine(args)
    rows, rounds, failed = [], {}, []
    for path in args.models:
        kept = measure(args, path)
        rounds[path] = [dataclasses.asdict(r) | {"peer": [[*k, v] for k, v in r.peer.items()]} for r in kept]
        if len(kept) < args.rounds:
            failed.append(f"{path}: {len(kept)} of {args.rounds} rounds were undisturbed")
        if kept:
            rows += compare(look_at(args, path), kept, limits)
    if args.json:
        result = {"cpu": cpu, "threads": args.threads, "rows": [dataclasses.asdict(r) for r in rows], "rounds": rounds}
        print(json.dumps(result, indent=2))
    else:
        int8 = f", {limits.int8_ops_per_s / 1e9:.0f} GOP/s int8" if limits.int8_ops_per_s else ""
        print(f"{cpu['name']}, {args.threads} threads, {cpu['instructions']}: {limits.read_bytes_per_s / 1e9:.1f} GB/s read"
              f"{int8}, {limits.f32_ops_per_s / 1e9:.0f} GFLOP/s f32\n")
        print(table(rows))
    for line in failed:
        print(f"warning: {line}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

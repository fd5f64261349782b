"""The arithmetic of compare.py, and the whole program on two fake binaries: python3 -m unittest discover tools/compare."""

import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import compare
from compare import Limits, Model, Round

MODEL = Model("m", decode_bytes=2_000, prefill_ops=3_000)
LIMITS = Limits(threads=2, read_bytes_per_s=1e6, int8_ops_per_s=4e6, f32_ops_per_s=2e6)

# Speeds follow a counter in a file, so that rounds differ and their order can be seen.
FAKE = """#!/usr/bin/env python3
import json, os, sys
here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "log"), "a") as log:
    log.write(NAME + " " + " ".join(sys.argv[1:]) + "\\n")
argv = sys.argv[1:]
def row(test, ts, **more):
    return {"n_prompt": 512 * (test == "pp"), "n_gen": 64 * (test == "tg"), "n_depth": 0, "avg_ts": ts, **more}
def round_idx():
    path = os.path.join(here, NAME + ".count")
    idx = int(open(path).read()) if os.path.exists(path) else 0
    open(path, "w").write(str(idx + 1))
    return idx
"""
HANZO = FAKE + """
if argv[0] == "devices":
    measured = [{"threads": 1, "read_bytes_per_s": 6e5, "int8_ops_per_s": 2e6, "f32_ops_per_s": 1e6},
                {"threads": 2, "read_bytes_per_s": 1e6, "int8_ops_per_s": 4e6, "f32_ops_per_s": 2e6}]
    print(json.dumps([{"name": "fake", "threads": 2, "instructions": "none", "measured": measured}]))
elif argv[0] == "inspect":
    print(json.dumps({"metadata": [], "tensors": [{"name": "token_embd.weight", "shape": [4, 5], "bytes": 2000}]}))
else:
    i = round_idx()
    print(json.dumps([row("pp", 200.0), row("tg", [30.0, 10.0, 20.0][i % 3])]))
"""
PEER = FAKE + """
i = round_idx()
print(json.dumps([row("pp", 100.0, flash_attn=0), row("tg", 10.0, flash_attn=0),
                  row("pp", 125.0, flash_attn=1), row("tg", 8.0, flash_attn=1)]))
"""


def rounds(ours, off, on):
    return [Round({"tg64": o}, {("tg64", 0): a, ("tg64", 1): b}, 0.0, True) for o, a, b in zip(ours, off, on)]


class Arithmetic(unittest.TestCase):
    def test_the_better_flash_attention_is_that_of_the_higher_median(self):
        # Its best round is better off, its median is better on.
        self.assertEqual(compare.better_flash_attention(rounds([1] * 3, [9, 1, 1], [2, 3, 2]), "tg64"), 1)
        self.assertEqual(compare.better_flash_attention(rounds([1], [5], [5]), "tg64"), 0)

    def test_the_ratio_is_the_median_of_the_ratios_of_the_rounds(self):
        row = compare.compare_test(MODEL, rounds([10, 30, 60], [10, 20, 15], [1, 1, 1]), LIMITS, "tg64")
        self.assertEqual((row.ratios, row.ratio), ([1.0, 1.5, 4.0], 1.5))
        # The ratio of the medians would be 2.
        self.assertEqual((row.ours, row.peer, row.flash_attention), (30, 15, 0))

    def test_shares_are_of_the_limit_that_binds(self):
        row = compare.compare_test(MODEL, rounds([100], [50], [1]), LIMITS, "tg64")
        self.assertEqual((row.limit, row.ours_share, row.peer_share), ("memory", 0.2, 0.1))
        both = Round({"pp512": 400.0}, {("pp512", 0): 100.0}, 0.0, True)
        row = compare.compare_test(MODEL, [both], LIMITS, "pp512")
        self.assertEqual((row.limit, row.ours_share), ("int8", 0.3))
        floats = Limits(2, 1e6, None, 2e6)
        row = compare.compare_test(MODEL, [both], floats, "pp512")
        self.assertEqual((row.limit, row.ours_share), ("f32", 0.6))
        plain = Model("m", decode_bytes=2_000, prefill_ops=3_000, float_ops=2_000)
        row = compare.compare_test(plain, [both], LIMITS, "pp512")
        self.assertEqual((row.limit, row.ours_share), ("f32", 0.6))

    def test_rounds_that_others_disturbed_are_thrown_away(self):
        made = [Round({}, {}, others, True) for others in (0.0, 0.04, 0.041, 0.5)]
        self.assertEqual([r.others for r in compare.kept_rounds(made, 0.04)], [0.0, 0.04])

    def test_others_are_what_was_busy_and_not_ours(self):
        # Of 20 seconds of two processors 15 were busy, 12 of them ours.
        self.assertAlmostEqual(compare.others_share((5.0, 100.0), (20.0, 120.0), 12.0), 0.15)
        self.assertEqual(compare.others_share((5.0, 100.0), (20.0, 120.0), 15.5), 0.0)
        self.assertEqual(compare.others_share((5.0, 100.0), (5.0, 100.0), 0.0), 0.0)

    def test_a_token_reads_what_it_needs(self):
        def tensor(name, *shape, of="Q8_0"):
            return {"name": name, "shape": list(shape), "bytes": 10 * shape[0], "type": of}

        tied = [tensor("token_embd.weight", 100, 8), tensor("blk.0.ffn_up.weight", 6, 8), tensor("output_norm.weight", 8)]
        self.assertEqual(compare.bytes_and_ops(tied, []), (1000 + 60 + 80, 2 * 48, 0))
        untied = [*tied, tensor("output.weight", 50, 8)]
        self.assertEqual(compare.bytes_and_ops(untied, []), (60 + 80 + 500, 2 * 48, 0))
        floats = [*tied, tensor("blk.0.ffn_down.weight", 8, 6, of="F16")]
        self.assertEqual(compare.bytes_and_ops(floats, []), (1000 + 60 + 80 + 80, 2 * 96, 2 * 48))
        experts = [tensor("blk.0.ffn_up_exps.weight", 16, 4, 8)]
        keys = {"general.architecture": "a", "a.expert_count": 16, "a.expert_used_count": 4}
        metadata = [{"key": k, "type": "", "value": v} for k, v in keys.items()]
        self.assertEqual(compare.bytes_and_ops(experts, metadata), (40, 2 * 16 * 4 * 8 // 4, 0))

    def test_tests_have_the_same_name_in_both_programs(self):
        self.assertEqual(compare.test_name({"n_prompt": 0, "n_gen": 64, "n_depth": 4096}), "tg64 @ d4096")
        self.assertEqual(compare.test_name({"n_prompt": 512, "n_gen": 0}), "pp512")


class Program(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name, text in (("hanzo", HANZO), ("llama-bench", PEER)):
            path = self.folder / name
            path.write_text(text.replace("NAME", repr(name)), encoding="utf-8")
            path.chmod(0o755)

    def run_main(self, *more):
        argv = ["--hanzo", f"{self.folder}/hanzo", "--llama-bench", f"{self.folder}/llama-bench", *more, "a/fake.gguf"]
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            code = compare.main(argv)
        log = (self.folder / "log").read_text(encoding="utf-8").splitlines()
        return code, out.getvalue(), [line for line in log if " -m " in line]

    def test_rounds_alternate_and_their_order_is_swapped(self):
        # The machine may be busy while tests run: nothing is thrown away here.
        code, out, log = self.run_main("--json", "--others", "100", "-r", "3", "-n", "64", "--peer-args", "-x 1")
        self.assertEqual(code, 0)
        self.assertEqual([line.split()[0] for line in log],
                         ["hanzo", "llama-bench", "llama-bench", "hanzo", "hanzo", "llama-bench"])
        self.assertEqual(log[0], "hanzo bench -m a/fake.gguf -p 512 -n 64 -t 2 -r 1 -o json")
        self.assertEqual(log[1], "llama-bench -m a/fake.gguf -p 512 -n 64 -t 2 -r 1 -o json -fa 0,1 -x 1")
        prefill, decode = json.loads(out)["rows"]
        self.assertEqual((prefill["ratio"], prefill["flash_attention"]), (1.6, 1))
        self.assertEqual((decode["ratios"], decode["ratio"], decode["flash_attention"]), ([3.0, 1.0, 2.0], 2.0, 0))
        self.assertEqual((decode["ours_share"], decode["peer_share"]), (0.04, 0.02))

    def test_the_table_has_a_row_a_test(self):
        code, out, _ = self.run_main("--others", "100", "-r", "1", "-t", "1")
        self.assertEqual(code, 0)
        self.assertTrue(out.startswith("fake, 1 threads, none: 0.0 GB/s read"), out)
        self.assertIn("| fake | tg64 | 30.0 | 10.0 | off | 3.00 | 3.00 to 3.00 | 1 | memory | 10% | 3% |", out)

    def test_disturbed_rounds_are_made_again_up_to_a_limit(self):
        code, out, log = self.run_main("--json", "--others", "-1", "-r", "2", "--tries", "3")
        self.assertEqual((code, len(log)), (1, 6))
        self.assertEqual(json.loads(out)["rows"], [])
        code, out, _ = self.run_main("--json", "--others", "-1", "-r", "2", "--tries", "3", "--keep-all")
        self.assertEqual((code, len(json.loads(out)["rows"])), (0, 2))

    def test_a_program_that_fails_ends_the_run(self):
        (self.folder / "llama-bench").write_text("#!/bin/sh\necho no such model >&2\nexit 3\n", encoding="utf-8")
        with self.assertRaises(SystemExit) as ended:
            self.run_main("--others", "100")
        self.assertIn("ended with 3\nno such model", str(ended.exception))


if __name__ == "__main__":
    unittest.main()

"""Makes the GGUF twins of the tiny models with llama.cpp's own converter.

    python tools/oracle/tiny_gguf.py PATH_OF_LLAMA_CPP [--dir testdata/tiny] [CASE ...]

Run it after tiny_text.py, which says in index.json which cases have a twin. The converter lives in the source tree
of llama.cpp (also inside the sdist of llama-cpp-python: vendor/llama.cpp) and wants torch and transformers. A tiny
model has no tokenizer, so the step that writes the vocabulary is replaced: model "none" and the number of tokens.
All else (names, permuted q and k, norms plus 1, stacked experts, keys) is the converter's. Afterwards each file is
read back and checked against the safetensors. With --check (needs the xllamacpp wheel, see llamacpp.py) llama.cpp then
computes the prompts of each twin, which makes it a second oracle, independent of transformers.
"""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

PERMUTED = ("llama", "mistral", "mixtral")
SHIFTED_NORMS = ("gemma", "gemma2", "gemma3_text")
# llama.cpp looks gelu up in a table of f16 values, and for arch llama it does not read the beta keys of yarn.
CHECK_LIMIT = 1e-5
CHECK_LIMIT_GELU = 1e-3
NOT_CHECKED = ("llama-rope-yarn-betas",)


def set_vocab_none(model):
    """Stands for set_vocab of every model class."""
    model.gguf_writer.add_tokenizer_model("none")
    key = f"{model.gguf_writer.arch}.vocab_size"
    if not any(key in shard for shard in model.gguf_writer.kv_data):
        model.gguf_writer.add_vocab_size(model.hparams["vocab_size"])


def stub_tokenizer(folder, n_vocab):
    """The gemma classes count the tokens of this file to cut padding rows off the embedding."""
    vocab = {f"t{i}": i for i in range(n_vocab)}
    content = dict(version="1.0", added_tokens=[], model=dict(type="BPE", vocab=vocab, merges=[]))
    (folder / "tokenizer.json").write_text(json.dumps(content))


def convert(conversion, gguf, record, root, target):
    with tempfile.TemporaryDirectory() as tmp:
        folder = Path(tmp)
        shutil.copy(root / record["configs"][0], folder / "config.json")
        shutil.copy(root / record["weights"], folder / "model.safetensors")
        stub_tokenizer(folder, record["vocab"])
        hparams = conversion.ModelBase.load_hparams(folder, False)
        architecture = conversion.get_model_architecture(hparams, conversion.ModelType.TEXT)
        base = conversion.get_model_class(architecture)
        stubbed = type(base.__name__, (base,), dict(set_vocab=set_vocab_none, model_arch=base.model_arch))
        with torch.inference_mode():
            stubbed(folder, gguf.LlamaFileType.ALL_F32, target, model_name=record["name"]).write()


def permuted(weights, n_head):
    """The row order of an adjacent-pair RoPE: rows (half, i) of a head become (i, half)."""
    rows = weights.reshape(n_head, 2, weights.shape[0] // n_head // 2, -1)
    return np.ascontiguousarray(rows.transpose(0, 2, 1, 3)).reshape(weights.shape)


def check(gguf, record, root, target):
    """Values of the tensors that the conversion changes, and that each tensor is F32."""
    hf = {k: v.float().numpy() for k, v in load_file(root / record["weights"]).items()}
    config = json.loads((root / record["configs"][0]).read_text())
    reader = gguf.GGUFReader(target)
    twin = {t.name: t.data for t in reader.tensors}
    assert all(t.tensor_type == gguf.GGMLQuantizationType.F32 for t in reader.tensors)
    assert ("output.weight" in twin) == (not config["tie_word_embeddings"])
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        for part, n_head in (("q", config["num_attention_heads"]), ("k", config["num_key_value_heads"])):
            want = hf[f"{layer}self_attn.{part}_proj.weight"]
            moved = permuted(want, n_head)
            assert not np.array_equal(want, moved)
            want = moved if record["model_type"] in PERMUTED else want
            assert np.array_equal(twin[f"blk.{i}.attn_{part}.weight"], want), f"layer {i}: {part}"
        norm = hf[f"{layer}input_layernorm.weight"]
        shift = np.float32(1.0 if record["model_type"] in SHIFTED_NORMS else 0.0)
        assert np.array_equal(twin[f"blk.{i}.attn_norm.weight"], norm + shift), f"layer {i}: norm"
        q_norm = hf.get(f"{layer}self_attn.q_norm.weight")
        if q_norm is not None:
            assert np.array_equal(twin[f"blk.{i}.attn_q_norm.weight"], q_norm + shift), f"layer {i}: q norm"
    return len(twin)


def second_opinion(record, root):
    """Largest difference of log-probabilities between llama.cpp and logits.bin, over the largest logit."""
    import llamacpp

    raw = np.fromfile(root / record["logits"], "<f4").astype(np.float64).reshape(-1, record["vocab"])
    oracle = llamacpp.Oracle(root / record["gguf"], 256, exact=True)
    worst = 0.0
    start = 0
    for prompt in record["prompts"]:
        oracle.reset()
        want = raw[start : start + prompt["n_tokens"]]
        start += prompt["n_tokens"]
        want = want - np.log(np.exp(want).sum(axis=1, keepdims=True))
        got = np.stack(list(oracle.feed(prompt["tokens"], all_rows=True)))
        worst = max(worst, float(np.abs(got - want).max()))
    oracle.close()
    return worst / record["max_abs_logit"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("llama_cpp", type=Path, help="folder with convert_hf_to_gguf.py")
    parser.add_argument("--dir", type=Path, default=Path("testdata/tiny"))
    parser.add_argument("--check", action="store_true", help="also compute the prompts with llama.cpp")
    parser.add_argument("cases", nargs="*", metavar="CASE")
    args = parser.parse_args()
    sys.path[:0] = [str(args.llama_cpp), str(args.llama_cpp / "gguf-py")]
    import conversion
    import gguf

    index = json.loads((args.dir / "index.json").read_text())
    for record in index["cases"]:
        if not record["gguf"] or (args.cases and record["name"] not in args.cases):
            continue
        target = args.dir / record["gguf"]
        convert(conversion, gguf, record, args.dir, target)
        n_tensors = check(gguf, record, args.dir, target)
        print(f"{record['name']}: {n_tensors} tensors, {target.stat().st_size} bytes", flush=True)
        if args.check and record["name"] not in NOT_CHECKED:
            worst = second_opinion(record, args.dir)
            print(f"{record['name']}: llama.cpp within {worst:.1e}", flush=True)
            limit = CHECK_LIMIT_GELU if record["model_type"] in SHIFTED_NORMS else CHECK_LIMIT
            assert worst < limit, record["name"]


if __name__ == "__main__":
    main()

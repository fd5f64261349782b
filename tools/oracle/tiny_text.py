"""Makes the tiny random decoders of testdata/tiny: weights, configurations, and the logits they must give.

    python tools/oracle/tiny_text.py [--out testdata/tiny] [CASE ...]

Needs torch, transformers, safetensors and numpy (the versions used are written to index.json). The oracle is
`transformers` run on the CPU with eager attention. Three things make these models able to catch a mistake:

* every parameter is redrawn, because the library's own initialisation (zero biases, unit norms, tiny weights)
  hides errors; the epsilon of the norms is large for the same reason;
* the forward pass runs in float64 throughout. transformers casts to float32 inside (norms, softmax, RoPE), so a
  function mode turns each such cast into float64; the result is rounded to float32 once, when it is stored;
* the prompts are longer than every window and every original context length.

A case is one folder. Cases that differ in the configuration alone share one weight file. Each case has its
configuration in the present spelling (`config.json`) and in the spelling of older files on model hubs
(`config_old.json`); both are loaded here and must give the same logits.
"""

import argparse
import copy
import json
import math
import os
import re
import shutil
import tempfile
import zlib
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch.overrides import TorchFunctionMode
from transformers import AutoConfig, AutoModelForCausalLM

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

VOCAB = 64
PROMPT_LENS = (48, 61, 5)
ABSENT = object()  # in `old` of a case: the file lacks the key
EPS = 0.01
COMMON = dict(
    vocab_size=VOCAB,
    hidden_size=64,
    intermediate_size=80,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
    rms_norm_eps=EPS,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    tie_word_embeddings=False,
    dtype="float32",
)
GEMMA = dict(
    hidden_size=76,
    head_dim=24,
    num_attention_heads=4,
    num_key_value_heads=1,
    tie_word_embeddings=True,
    rms_norm_eps=0.25,
)
QWEN3_MOE = dict(
    head_dim=24,
    num_experts=5,
    num_experts_per_tok=2,
    moe_intermediate_size=16,
    decoder_sparse_step=1,
    mlp_only_layers=[],
)


def rope(kind, theta=10000.0, **kwargs):
    return dict(rope_type=kind, rope_theta=theta, **kwargs)


SHORT8 = [1.0, 1.1, 1.3, 1.5, 1.8, 2.0, 2.5, 3.0]
LONG8 = [1.0, 1.6, 2.5, 4.0, 6.5, 9.0, 12.0, 16.0]
YARN = dict(factor=4.0, original_max_position_embeddings=32)
LLAMA = dict(rope_parameters=rope("default"))
LINEAR_ON_FULL = dict(
    full_attention=rope("linear", 200000.0, factor=8.0),
    sliding_attention=rope("default", 5000.0),
)


def gemma2(**settings):
    base = dict(GEMMA, rope_parameters=rope("default"), hidden_size=56, intermediate_size=64, num_hidden_layers=3,
                num_key_value_heads=2, query_pre_attn_scalar=10, sliding_window=16, attn_logit_softcapping=5.0,
                final_logit_softcapping=3.0)
    return dict(base, **settings)


def gemma3(**settings):
    base = dict(GEMMA, hidden_size=40, head_dim=20, num_attention_heads=2, intermediate_size=56, num_hidden_layers=7,
                query_pre_attn_scalar=14, sliding_window=16,
                rope_parameters=dict(full_attention=rope("default", 200000.0),
                                     sliding_attention=rope("default", 5000.0)))
    return dict(base, **settings)


def case(model_type, settings, catches, weights=None, old=None, gguf=True, note=None, dtype="float32",
         same=False):
    """One row: `weights` names the case whose weight file is used, `old` what config_old.json has besides."""
    return dict(model_type=model_type, settings=settings, catches=catches, weights=weights, old=old or {}, gguf=gguf,
                note=note, dtype=dtype, same=same)


CASES = {
    # llama
    "llama": case("llama", LLAMA, "grouped kv heads, derived head_dim, untied output",
                  old=dict(head_dim=ABSENT)),
    "llama-tied-bias": case(
        "llama", dict(rope_parameters=rope("default", 500.0), head_dim=24, attention_bias=True, mlp_bias=True,
                      tie_word_embeddings=True),
        "biases of q, k, v, o and of the three mlp projections; tied output; head_dim not hidden / heads; theta"),
    "llama-rope-linear": case("llama", dict(rope_parameters=rope("linear", factor=4.0)), "linear RoPE scaling",
                              "llama"),
    "llama-rope-llama3": case(
        "llama", dict(rope_parameters=rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                           original_max_position_embeddings=64)),
        "llama3 RoPE: kept, blended and divided frequencies all occur", "llama"),
    "llama-rope-yarn": case("llama", dict(rope_parameters=rope("yarn", **YARN)),
                            "yarn with defaults: beta 32 and 1, truncate, factor 0.1 ln(s) + 1 on cos and sin",
                            "llama"),
    "llama-rope-yarn-betas": case(
        "llama", dict(rope_parameters=rope("yarn", factor=4.0, original_max_position_embeddings=64, beta_fast=1.5,
                                           beta_slow=0.1)),
        "yarn with a ramp that starts above 0", "llama",
        note="for arch llama llama.cpp itself does not read the two beta keys that its converter writes"),
    "llama-rope-yarn-no-truncate": case(
        "llama", dict(rope_parameters=rope("yarn", factor=4.0, original_max_position_embeddings=64, beta_fast=1.5,
                                           beta_slow=0.1, truncate=False)),
        "yarn with truncate: false (the bounds of the ramp stay fractions)", "llama", gguf=False,
        note="GGUF has no key for truncate"),
    "llama-rope-yarn-mscale": case(
        "llama", dict(rope_parameters=rope("yarn", mscale=2.0, mscale_all_dim=0.5, **YARN)),
        "yarn with mscale and mscale_all_dim: the factor is the quotient of the two", "llama", gguf=False),
    "llama-rope-yarn-attention-factor": case(
        "llama", dict(rope_parameters=rope("yarn", attention_factor=0.7, **YARN)),
        "yarn with an explicit attention_factor, which wins over the default", "llama", gguf=False),
    "llama-rope-yarn-no-original": case(
        "llama", dict(max_position_embeddings=100, rope_parameters=rope("yarn", factor=4.0)),
        "yarn without original_max_position_embeddings: max_position_embeddings stands for it", "llama", gguf=False),
    "llama-rope-longrope-long": case(
        "llama", dict(rope_parameters=rope("longrope", factor=4.0, short_factor=SHORT8, long_factor=LONG8,
                                           original_max_position_embeddings=32)),
        "longrope past the original length (prompts 48, 61: long factors; prompt 5: short), attention factor "
        "sqrt(1 + ln s / ln L0)", "llama", gguf=False),
    "llama-rope-longrope-short": case(
        "llama", dict(rope_parameters=rope("longrope", factor=4.0, short_factor=SHORT8, long_factor=LONG8,
                                           original_max_position_embeddings=61)),
        "longrope at and below the original length: 61 tokens are not more than 61, short factors", "llama",
        gguf=False),
    "llama-rope-longrope-both": case(
        "llama", dict(rope_parameters=rope("longrope", short_factor=SHORT8, long_factor=LONG8,
                                           original_max_position_embeddings=50)),
        "longrope without factor (max / original is used); 48 tokens short, 61 tokens long", "llama", gguf=False),
    "llama-rope-dynamic": case(
        "llama", dict(max_position_embeddings=40, rope_parameters=rope("dynamic", factor=4.0)),
        "dynamic NTK: theta depends on the length of the whole sequence (prompt 5: unscaled)", "llama", gguf=False,
        note="may be refused by name instead"),
    "llama-defaults": case(
        "llama", dict(LLAMA, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2,
                      num_key_value_heads=2),
        "config_old.json lacks num_key_value_heads, head_dim, rope_theta, rope_scaling, tie_word_embeddings and biases",
        old=dict.fromkeys(("num_key_value_heads", "head_dim", "rope_theta", "rope_scaling", "tie_word_embeddings",
                           "attention_bias", "mlp_bias"), ABSENT)),
    # mistral
    "mistral": case("mistral", dict(rope_parameters=rope("default"), sliding_window=16),
                    "sliding window on every layer", "llama", old=dict(head_dim=ABSENT), gguf=False,
                    note="a GGUF of arch llama has no window"),
    "mistral-no-window": case("mistral", dict(rope_parameters=rope("default"), sliding_window=None),
                              "sliding_window null: the same logits as llama", "llama", old=dict(head_dim=ABSENT),
                              gguf=False, same=True),
    "mistral-nemo": case("mistral", dict(rope_parameters=rope("default", 1000000.0), sliding_window=None, head_dim=24),
                         "explicit head_dim 24 where hidden / heads is 16"),
    # mixtral
    "mixtral": case("mixtral", dict(rope_parameters=rope("default", 1000000.0), num_local_experts=4,
                                    num_experts_per_tok=2, intermediate_size=40, sliding_window=None),
                    "experts: softmax, top 2, renormalised; names w1, w2, w3"),
    "mixtral-window": case("mixtral", dict(rope_parameters=rope("default", 1000000.0), num_local_experts=4,
                                           num_experts_per_tok=2, intermediate_size=40, sliding_window=16),
                           "sliding window on every layer of mixtral", "mixtral", gguf=False),
    # qwen2
    "qwen2": case("qwen2", dict(rope_parameters=rope("default", 1000000.0), num_hidden_layers=3),
                  "biases of q, k, v only; a window that is written and switched off",
                  old=dict(use_sliding_window=False, sliding_window=16, max_window_layers=1)),
    "qwen2-tied": case("qwen2", dict(rope_parameters=rope("default", 1000000.0), tie_word_embeddings=True,
                                     num_hidden_layers=1),
                       "tied output", old=dict(use_sliding_window=False, sliding_window=16, max_window_layers=1)),
    "qwen2-window": case(
        "qwen2", dict(rope_parameters=rope("default", 1000000.0), num_hidden_layers=3, use_sliding_window=True,
                      sliding_window=16, max_window_layers=1),
        "window on the layers from max_window_layers on (layer 0 full, 1 and 2 sliding)", "qwen2",
        old=dict(use_sliding_window=True, sliding_window=16, max_window_layers=1), gguf=False),
    "qwen2-yarn": case("qwen2", dict(rope_parameters=rope("yarn", 1000000.0, **YARN), num_hidden_layers=3),
                       "yarn as Qwen2.5 documents it", "qwen2", gguf=False,
                       old=dict(use_sliding_window=False, sliding_window=16, max_window_layers=1)),
    # qwen3
    "qwen3": case("qwen3", dict(rope_parameters=rope("default", 1000000.0), head_dim=24),
                  "norm of q and k per head before RoPE; explicit head_dim",
                  old=dict(use_sliding_window=False, sliding_window=None, max_window_layers=2)),
    "qwen3-yarn": case("qwen3", dict(rope_parameters=rope("yarn", 1000000.0, **YARN), head_dim=24), "yarn", "qwen3",
                       gguf=False, old=dict(use_sliding_window=False, sliding_window=None, max_window_layers=2)),
    "qwen3-window": case(
        "qwen3", dict(rope_parameters=rope("default", 1000000.0), head_dim=24, use_sliding_window=True,
                      sliding_window=16, max_window_layers=1),
        "window on layer 1 only", "qwen3", old=dict(use_sliding_window=True, sliding_window=16, max_window_layers=1),
        gguf=False),
    "qwen3-tied-bias": case("qwen3", dict(rope_parameters=rope("default", 1000000.0), head_dim=24, attention_bias=True,
                                          tie_word_embeddings=True, num_hidden_layers=1),
                            "attention_bias (q, k, v and o); tied output", gguf=False),
    # qwen3moe
    "qwen3moe": case("qwen3_moe", dict(QWEN3_MOE, rope_parameters=rope("default", 1000000.0), norm_topk_prob=True),
                     "5 experts, top 2, renormalised"),
    "qwen3moe-no-norm": case(
        "qwen3_moe", dict(QWEN3_MOE, rope_parameters=rope("default", 1000000.0), norm_topk_prob=False),
        "norm_topk_prob false: the weights of the chosen experts sum to less than 1", "qwen3moe", gguf=False,
        note="a GGUF of arch qwen3moe has no key for it"),
    "qwen3moe-mixed": case(
        "qwen3_moe", dict(QWEN3_MOE, rope_parameters=rope("default", 1000000.0), norm_topk_prob=True,
                          num_hidden_layers=4, hidden_size=48, intermediate_size=64, decoder_sparse_step=2,
                          num_attention_heads=2, num_key_value_heads=1,
                          mlp_only_layers=[1], num_experts=4),
        "dense layers: step 2 makes 1 and 3 sparse, mlp_only_layers takes 1 back, so only 3 has experts", gguf=False),
    "qwen3moe-window": case(
        "qwen3_moe", dict(QWEN3_MOE, rope_parameters=rope("default", 1000000.0), norm_topk_prob=True,
                          use_sliding_window=True, sliding_window=16),
        "a window on every layer: this family has no max_window_layers", "qwen3moe",
        old=dict(use_sliding_window=True, sliding_window=16, max_window_layers=1), gguf=False),
    # gemma
    "gemma": case("gemma", dict(GEMMA, rope_parameters=rope("default")),
                  "embedding times sqrt(d), 1 + w norms, tanh gelu although hidden_act says gelu, one kv head, tied",
                  old=dict(hidden_act="gelu", hidden_activation=None)),
    "gemma-bf16": case("gemma", dict(GEMMA, rope_parameters=rope("default"), dtype="bfloat16"),
                       "bfloat16 weights: sqrt(76) is rounded to bfloat16 (8.6875) before it multiplies",
                       dtype="bfloat16", old=dict(hidden_activation="gelu_pytorch_tanh"), gguf=False),
    # gemma2. No GGUF key holds query_pre_attn_scalar, so a twin needs the value that llama.cpp assumes: head_dim.
    "gemma2": case("gemma2", gemma2(),
                   "sandwich norms, softcaps that bite, scale 10^-1/2 (not head_dim), even layers slide",
                   old=dict(hidden_act="gelu_pytorch_tanh"), gguf=False),
    "gemma2-scale": case("gemma2", gemma2(query_pre_attn_scalar=24), "query_pre_attn_scalar equal to head_dim",
                         "gemma2"),
    "gemma2-no-softcap": case("gemma2", gemma2(attn_logit_softcapping=None, final_logit_softcapping=None),
                              "both softcaps null", "gemma2", gguf=False),
    # gemma3
    "gemma3": case("gemma3_text", gemma3(),
                   "five sliding layers to one full (layer 5), a theta for each kind, 1 + w norms of q and k, "
                   "scale 14^-1/2",
                   old=dict(sliding_window_pattern=6), gguf=False),
    "gemma3-scale": case("gemma3_text", gemma3(query_pre_attn_scalar=20), "query_pre_attn_scalar equal to head_dim",
                         "gemma3", old=dict(sliding_window_pattern=6)),
    "gemma3-linear": case("gemma3_text", gemma3(query_pre_attn_scalar=20, rope_parameters=LINEAR_ON_FULL),
                          "linear RoPE on the full layers alone, as in the larger models", "gemma3",
                          old=dict(sliding_window_pattern=6)),
    "gemma3-defaults": case(
        "gemma3_text", gemma3(rope_parameters=dict(full_attention=rope("default", 1000000.0),
                                                   sliding_attention=rope("default", 10000.0))),
        "config_old.json has no theta and no pattern at all: 1e6, 1e4 and 6 are the family's own", "gemma3",
        old=dict(rope_theta=ABSENT, rope_local_base_freq=ABSENT), gguf=False),
    "gemma3-pattern": case(
        "gemma3_text", gemma3(rope_parameters=LINEAR_ON_FULL,
                              layer_types=["sliding_attention", "full_attention"] * 3 + ["sliding_attention"]),
        "layer_types given (new spelling), sliding_window_pattern 2 (old spelling)", "gemma3",
        old=dict(sliding_window_pattern=2), gguf=False),
    "gemma3-softcap": case("gemma3_text", gemma3(final_logit_softcapping=3.0, attn_logit_softcapping=2.0),
                           "final softcap is honoured, attention softcap is ignored", "gemma3",
                           old=dict(sliding_window_pattern=6), gguf=False),
}


class Float64(TorchFunctionMode):
    """Turns every float32 that the model code asks for into float64."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.float:
            return args[0].double()
        args = tuple(torch.float64 if a is torch.float32 else a for a in args)
        kwargs = {k: torch.float64 if v is torch.float32 else v for k, v in (kwargs or {}).items()}
        return func(*args, **kwargs)


def make_config(row):
    settings = {**COMMON, **copy.deepcopy(row["settings"])}
    if row["model_type"] in ("gemma2", "gemma3_text"):
        settings["hidden_activation"] = "gelu_pytorch_tanh"
    cfg = AutoConfig.for_model(row["model_type"], **settings)
    return prepare(cfg)


def prepare(cfg):
    cfg._attn_implementation = "eager"
    cfg._experts_implementation = "eager"
    return cfg


def redraw(model, name):
    """New values for every parameter; the seed depends on the name of the case alone."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    tied = model.config.tie_word_embeddings
    with torch.no_grad():
        for key, w in sorted(model.named_parameters()):
            if w.dim() >= 2:
                std = 0.5 if "embed_tokens" in key and not tied else 1.5 / math.sqrt(w.shape[-1])
                value = rng.normal(0.0, std, tuple(w.shape))
            elif key.endswith("bias"):
                value = rng.normal(0.0, 0.5, tuple(w.shape))
            elif "norm" in key:  # where the model adds 1 the library's own value is 0
                low = 0.5 if float(w.float().mean()) > 0.5 else -0.5
                value = rng.uniform(low, low + 1.0, tuple(w.shape))
            else:
                raise ValueError(f"no rule for parameter {key}")
            w.copy_(torch.from_numpy(value).to(w.dtype))


def sensible(model):
    """Fails if a parameter was left as the library made it."""
    for key, w in model.named_parameters():
        assert w.float().std() > 0.05, f"{key} looks untouched"


def exact_logits(cfg, state, prompts):
    """[T, V] float64 logits of each prompt, and the smallest gap between a chosen and a left-out expert."""
    gaps = []
    out = []
    for tokens in prompts:
        # A new model for each prompt: dynamic RoPE remembers the longest sequence that it has seen.
        with Float64():
            model = AutoModelForCausalLM.from_config(copy.deepcopy(cfg), attn_implementation="eager").double().eval()
            model.load_state_dict({k: v.double() for k, v in state.items()}, strict=True)
            embed = model.model.embed_tokens
            if hasattr(embed, "embed_scale"):
                scale = torch.tensor(embed.scalar_embed_scale, dtype=torch.float64)
                embed.embed_scale = scale.bfloat16().double() if cfg.dtype == torch.bfloat16 else scale
            for module in model.modules():
                if type(module).__name__.endswith("TopKRouter"):
                    module.register_forward_hook(lambda m, _, result: gaps.append(router_gap(m, result[0])))
            with torch.no_grad():
                logits = model(torch.tensor([tokens]), use_cache=False).logits[0]
        assert logits.dtype == torch.float64 and bool(torch.isfinite(logits).all())
        out.append(logits)
    return out, min(gaps, default=None)


def router_gap(router, logits):
    top = torch.sort(logits, dim=-1, descending=True).values
    return float((top[:, router.top_k - 1] - top[:, router.top_k]).min())


def library_logits(folder, config_file, weights, prompts):
    """What an ordinary from_pretrained in the case's own dtype gives for this configuration file."""
    with tempfile.TemporaryDirectory() as tmp:
        shutil.copy(folder / config_file, Path(tmp) / "config.json")
        shutil.copy(weights, Path(tmp) / "model.safetensors")
        out = []
        for tokens in prompts:
            cfg = prepare(AutoConfig.from_pretrained(tmp))
            model, info = AutoModelForCausalLM.from_pretrained(
                tmp, config=cfg, dtype=cfg.dtype, attn_implementation="eager", output_loading_info=True)
            assert not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
            with torch.no_grad():
                out.append(model.eval()(torch.tensor([tokens]), use_cache=False).logits[0].double())
        return out


def old_spelling(config, row):
    """config.json as an older release of the library would have written it."""
    old = {k: v for k, v in config.items() if k not in ("rope_parameters", "layer_types", "dtype", "use_cache")}
    rope_parameters = copy.deepcopy(config["rope_parameters"])
    old["transformers_version"] = "4.50.0"
    old["torch_dtype"] = config["dtype"]
    if row["model_type"] == "gemma3_text":
        old["rope_local_base_freq"] = rope_parameters["sliding_attention"]["rope_theta"]
        rope_parameters = rope_parameters["full_attention"]
    old["rope_theta"] = rope_parameters.pop("rope_theta")
    kind = rope_parameters.pop("rope_type")
    # The key was "type" before it was "rope_type"; llama3 came with the new one. Some files carry both.
    names = {"llama3": ("rope_type",), "longrope": ("type",), "linear": ("rope_type", "type")}.get(kind, ("type",))
    old["rope_scaling"] = None if kind == "default" else {**dict.fromkeys(names, kind), **rope_parameters}
    if row["model_type"] == "gemma3_text":
        old.pop("_sliding_window_pattern", None)
    if row["model_type"] == "qwen3_moe":
        old["num_experts"] = old.pop("num_local_experts")
    old.update(row["old"])
    if row["model_type"].startswith("gemma"):
        del old["tie_word_embeddings"]  # as in the files of these families: tied is their default
    old = {k: v for k, v in old.items() if v is not ABSENT}
    return old


def make_prompts():
    rng = np.random.default_rng(2)
    return [[1] + rng.integers(3, VOCAB, n - 1).tolist() for n in PROMPT_LENS]


def ratio(a, b):
    """Largest difference over the largest logit, the measure that the tests use."""
    return max(float((x - y).abs().max() / x.abs().max()) for x, y in zip(a, b, strict=True))


def dump(path, value):
    text = json.dumps(value, indent=1, ensure_ascii=False)
    text = re.sub(r"\[[\d\s,]*\]", lambda m: re.sub(r"\s+", "", m.group()), text)  # a list of numbers on one line
    path.write_text(text + "\n")


def make_case(name, out, truths):
    row = CASES[name]
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    owner = row["weights"] or name
    weights = out / owner / "model.safetensors"
    cfg = make_config(row)
    model = AutoModelForCausalLM.from_config(copy.deepcopy(cfg), attn_implementation="eager").eval()
    redraw(model, owner)
    sensible(model)
    with tempfile.TemporaryDirectory() as tmp:
        model.save_pretrained(tmp)
        config = json.loads((Path(tmp) / "config.json").read_text())
        tensors = load_file(Path(tmp) / "model.safetensors")
    if owner == name:
        save_file(tensors, weights, metadata={"format": "pt"})
    else:
        there = load_file(weights)
        assert there.keys() == tensors.keys() and all(torch.equal(there[k], tensors[k]) for k in there), name
    dump(folder / "config.json", config)
    dump(folder / "config_old.json", old_spelling(config, row))

    prompts = make_prompts()
    truth, gap = exact_logits(cfg, model.state_dict(), prompts)
    assert gap is None or gap > 1e-4, f"{name}: two experts are within {gap}; choose another seed"
    files = ("config.json", "config_old.json")
    agreement = {f: ratio(truth, library_logits(folder, f, weights, prompts)) for f in files}
    limit = 1e-5 if row["dtype"] == "float32" else 0.1
    assert max(agreement.values()) < limit, f"{name}: {agreement}"
    raw = np.concatenate([t.numpy().astype("<f4").reshape(-1) for t in truth])
    (folder / "logits.bin").write_bytes(raw.tobytes())
    for other, logits in truths.items():
        if owner in (other, CASES[other]["weights"]) and not (row["same"] or CASES[other]["same"]):
            assert ratio(truth, logits) > 0.01, f"{name} is too close to {other}"
    truths[name] = truth
    differs = ratio(truth, truths[owner]) if owner in truths and owner != name else None

    offsets = np.cumsum([0] + [len(p) * VOCAB * 4 for p in prompts])
    record = dict(
        name=name,
        dir=name,
        model_type=row["model_type"],
        family=row["model_type"].replace("_text", "").replace("_", ""),
        catches=row["catches"],
        note=row["note"],
        weights=f"{owner}/model.safetensors",
        configs=[f"{name}/config.json", f"{name}/config_old.json"],
        gguf=f"{name}/model.gguf" if row["gguf"] else None,
        logits=f"{name}/logits.bin",
        vocab=VOCAB,
        dtype=row["dtype"],
        prompts=[dict(n_tokens=len(p), logits_offset_bytes=int(o), tokens=p) for p, o in zip(prompts, offsets)],
        max_abs_logit=max(float(t.abs().max()) for t in truth),
        differs_from_weights_owner=differs,
        library_agrees_within=max(agreement.values()),
        smallest_expert_gap=gap,
    )
    dump(folder / "case.json", record)
    n_params = sum(p.numel() for p in model.parameters())
    gap = "" if gap is None else f" expert gap {gap:.1e}"
    shown = "" if differs is None else f" differs {differs:.3f}"
    print(f"{name}: {n_params} parameters, library within {max(agreement.values()):.1e}{shown}{gap}", flush=True)


def write_index(out):
    records = [json.loads((out / n / "case.json").read_text()) for n in CASES if (out / n / "case.json").exists()]
    dump(out / "index.json", dict(
        generator="tools/oracle/tiny_text.py",
        gguf_generator="tools/oracle/tiny_gguf.py",
        transformers=transformers.__version__,
        torch=torch.__version__.split("+")[0],
        tolerance="1e-4 of max_abs_logit",
        cases=records,
    ))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("testdata/tiny"))
    parser.add_argument("cases", nargs="*", metavar="CASE")
    args = parser.parse_args()
    wanted = args.cases or list(CASES)
    truths = {}
    for name in sorted(wanted, key=list(CASES).index):
        make_case(name, args.out, truths)
    write_index(args.out)


if __name__ == "__main__":
    main()

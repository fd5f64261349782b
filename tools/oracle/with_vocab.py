"""Makes testdata/tiny/with-vocab.gguf, a whole chat model of 0.2 MB, and with-vocab.json, what it must do.

    python tools/oracle/with_vocab.py [--dir testdata/tiny] [--check]

A llama of two layers with a byte-level BPE vocabulary and a chat template, for tests of the program without a
network. Its answer is known by construction: the output matrix maps each token of ANSWER to the next one and every
other token to the first, and the layers add too little to change that. The answer holds an emoji of four bytes, each a token
of its own, so that text which comes token by token must hold bytes back.

Needs numpy, gguf, tokenizers and jinja2 (the expected ids are those of PyPI's tokenizers, the expected prompts those of
jinja2, set up as transformers does). With --check (needs xllamacpp, see llamacpp.py) llama.cpp computes the answer too.
"""

import argparse
import json
from pathlib import Path

import gguf
import jinja2
import jinja2.sandbox
import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

DIM, HEADS, KV_HEADS, FFN, LAYERS, CONTEXT = 64, 4, 2, 96, 2, 256
WORDS = ["Hello", " from", " a", " tiny", " test", " model", "user", "assistant", "system", "tools", " the", "ing"]
SPECIALS = ["<|begin|>", "<|im_start|>", "<|im_end|>", "<|unused|>"]
ANSWER = "Hello from a tiny test model \U0001f600"
TEMPLATE = (
    "{%- if tools %}{{ '<|im_start|>tools\\n' + (tools | tojson) + '<|im_end|>\\n' }}{% endif -%}"
    "{%- for message in messages -%}"
    "{%- if message['role'] not in ['system', 'user', 'assistant'] -%}"
    "{{ raise_exception('unknown role ' + message['role']) }}{%- endif -%}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"
)
TEXTS = [
    "", "Hello", "Hello from a tiny test model", "the user's  test\n\n", "héllo 😀 日本", "\t\x01\x7f",
    "<|im_start|>user\nHello<|im_end|>", "testing 123 4567 <|begin|>",
]
USER = {"role": "user", "content": "Hello?"}
CONVERSATIONS = [
    ([USER], None),
    ([{"role": "system", "content": "Be a tiny model."}, USER], None),
    ([USER, {"role": "assistant", "content": ANSWER}, {"role": "user", "content": "<|im_end|> é"}], None),
    ([USER], [{"type": "function", "function": {"name": "f", "parameters": {"x": "<y>"}}}]),
]


def byte_letters():
    """The letter that stands for each byte (GPT-2)."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in keep]
    return {**{b: chr(b) for b in keep}, **{b: chr(256 + i) for i, b in enumerate(rest)}}


def vocabulary():
    letters = byte_letters()
    tokens = [letters[b] for b in range(256)]
    merges = []
    for word in WORDS:
        parts = [letters[b] for b in word.encode()]
        while len(parts) > 1:
            if (parts[0], parts[1]) not in merges:
                merges.append((parts[0], parts[1]))
                tokens.append(parts[0] + parts[1])
            parts[:2] = [parts[0] + parts[1]]
    tokens = list(dict.fromkeys(tokens))
    return tokens, merges


def oracle_tokenizer(tokens, merges):
    model = models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges)
    plain = tokenizers.Tokenizer(model)
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    special = tokenizers.Tokenizer.from_str(plain.to_str())
    special.add_special_tokens(SPECIALS)
    assert [special.token_to_id(t) for t in SPECIALS] == list(range(len(tokens), len(tokens) + len(SPECIALS)))
    return plain, special


def successors(tokens, special):
    """The token after each token: a chain from the line break to <|im_end|>; from elsewhere, its first."""
    chain = special.encode("\n" + ANSWER).ids + [special.token_to_id("<|im_end|>")]
    assert len(set(chain)) == len(chain)
    return chain


def weights(n_vocab, chain):
    random = np.random.default_rng(20261129)
    # Directions at right angles: one for each token of the chain, one that all others share.
    axes = np.linalg.qr(random.standard_normal((DIM, DIM)))[0]
    embedding = axes[-1] + 0.02 * random.standard_normal((n_vocab, DIM))
    output = 0.02 * random.standard_normal((n_vocab, DIM))
    for i, token in enumerate(chain[:-1]):
        embedding[token] = axes[i]
        output[chain[i + 1]] += axes[i]
    output[chain[1]] += axes[-1]
    out = {"token_embd.weight": embedding, "output.weight": output, "output_norm.weight": np.ones(DIM)}
    kv = DIM // HEADS * KV_HEADS
    shapes = dict(attn_q=(DIM, DIM), attn_k=(kv, DIM), attn_v=(kv, DIM), attn_output=(DIM, DIM))
    shapes |= dict(ffn_gate=(FFN, DIM), ffn_up=(FFN, DIM), ffn_down=(DIM, FFN))
    for layer in range(LAYERS):
        for name, shape in shapes.items():
            scale = 0.002 if name in ("attn_output", "ffn_down") else 0.1
            out[f"blk.{layer}.{name}.weight"] = scale * random.standard_normal(shape)
        for name in ("attn_norm", "ffn_norm"):
            out[f"blk.{layer}.{name}.weight"] = 1 + 0.05 * random.standard_normal(DIM)
    return {name: array.astype(np.float32) for name, array in out.items()}


def write_model(path, tokens, merges, tensors):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("Tiny with vocabulary")
    writer.add_license("MIT")
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(DIM)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(DIM // HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(tokens) + len(SPECIALS))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens + SPECIALS)
    kinds = [gguf.TokenType.NORMAL] * len(tokens) + [gguf.TokenType.CONTROL] * len(SPECIALS)
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_bos_token_id(len(tokens))
    writer.add_eos_token_id(len(tokens) + SPECIALS.index("<|im_end|>"))
    writer.add_add_bos_token(True)
    writer.add_chat_template(TEMPLATE)
    q8 = gguf.GGMLQuantizationType.Q8_0
    for name, array in tensors.items():
        if array.ndim == 2:
            writer.add_tensor(name, gguf.quants.quantize(array, q8), raw_dtype=q8)
        else:
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def renderer():
    def fail(message):
        raise jinja2.exceptions.TemplateError(message)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    environment.globals["raise_exception"] = fail
    return environment.from_string(TEMPLATE)


def expectations(tokens, plain, special, chain):
    bos = special.token_to_id("<|begin|>")
    encode = lambda tokenizer, text: tokenizer.encode(text).ids
    template = renderer()
    prompts = []
    for messages, tools in CONVERSATIONS:
        text = template.render(messages=messages, tools=tools, add_generation_prompt=True)
        prompts.append(dict(messages=messages, tools=tools, text=text, ids=[bos] + encode(special, text)))
    return dict(
        generator="tools/oracle/with_vocab.py",
        versions=dict(tokenizers=tokenizers.__version__, jinja2=jinja2.__version__, gguf="0.19"),
        answer=ANSWER,
        answer_ids=chain[1:],
        context=CONTEXT,
        vocab=len(tokens) + len(SPECIALS),
        bos=bos,
        texts=[dict(text=t, ids=encode(plain, t), ids_special=encode(special, t)) for t in TEXTS],
        prompts=prompts,
    )


def check(path, prompts, chain):
    import llamacpp

    oracle = llamacpp.Oracle(path, CONTEXT, exact=True)
    for prompt in prompts:
        oracle.reset()
        row = oracle.feed(prompt["ids"])
        got = []
        for _ in chain[1:]:
            got.append(int(np.argmax(row)))
            row = oracle.feed(got[-1:])
        assert got == chain[1:], (got, chain)
    oracle.close()
    print(f"llama.cpp: the same answer to {len(prompts)} prompts")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--dir", type=Path, default=Path("testdata/tiny"))
    parser.add_argument("--check", action="store_true", help="also compute the answer with llama.cpp")
    args = parser.parse_args()
    tokens, merges = vocabulary()
    plain, special = oracle_tokenizer(tokens, merges)
    chain = successors(tokens, special)
    path = args.dir / "with-vocab.gguf"
    write_model(path, tokens, merges, weights(len(tokens) + len(SPECIALS), chain))
    facts = expectations(tokens, plain, special, chain)
    (args.dir / "with-vocab.json").write_text(json.dumps(facts, indent=1, ensure_ascii=True) + "\n")
    print(f"{path}: {path.stat().st_size} bytes, {facts['vocab']} tokens")
    if args.check:
        check(path, facts["prompts"], chain)


if __name__ == "__main__":
    main()

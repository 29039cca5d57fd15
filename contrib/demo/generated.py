# SPDX-License-Identifier: Apache-2.0
"""A stand-in for the model that needs nothing but Python: pages made by a seeded generator.

It is no language model: its answers are words without meaning. It keeps what matters to a cache:
a token's row depends on all tokens before it, the logits depend on every byte of every page, a page
has the size of a real one, and a page is dearer to make than to read.
"""
import hashlib
import re
import zlib

ROW_BYTES = 23040   # one token: 30 layers, K and V, 3 heads of 64 numbers of 2 bytes
WORDS = ("amber birch cedar delta ember fjord grove heath isle jade knoll larch moss north oak pine "
         "quay reed slate tarn umber vale wold yew").split()


class Generated:
    name = "generated-pages"
    page_tokens = 64
    page_bytes = page_tokens * ROW_BYTES
    end_token = -1      # never made: answers have the full length

    def chat(self, system, question):
        words = re.findall(r"\w+|[^\w\s]|\n", f"system\n{system}\nuser\n{question}\nassistant\n")
        return [zlib.crc32(word.encode()) for word in words]

    def decode(self, ids):
        return " ".join(WORDS[token] for token in ids)

    def new_cache(self, n_tokens):
        return bytearray(n_tokens * ROW_BYTES)

    def step(self, ids, cache, at):
        """Fills the rows at..at+len(ids)-1 from all rows before them; returns the logits."""
        rows = memoryview(cache)
        state = hashlib.sha256(b"seed 1" + rows[:at * ROW_BYTES])
        for row_i, token in enumerate(ids, at):
            seed = state.digest() + (token & 0xffffffff).to_bytes(4, "little")
            rows[row_i * ROW_BYTES:(row_i + 1) * ROW_BYTES] = hashlib.shake_256(seed).digest(ROW_BYTES)
            state.update(rows[row_i * ROW_BYTES:(row_i + 1) * ROW_BYTES])
        return hashlib.shake_256(state.digest()).digest(4 * len(WORDS))

    def best(self, logits):
        return max(range(len(WORDS)), key=lambda i: logits[4 * i:4 * i + 4])

    def logits_bytes(self, logits):
        return logits

    def export_page(self, cache, at):
        return bytes(memoryview(cache)[at * ROW_BYTES:at * ROW_BYTES + self.page_bytes])

    def import_page(self, cache, at, data):
        cache[at * ROW_BYTES:at * ROW_BYTES + self.page_bytes] = data

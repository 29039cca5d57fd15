# SPDX-License-Identifier: Apache-2.0
"""One request: the longest cached prefix, prefill of the rest, greedy decoding.

The engine (smollm2.SmolLM2 or generated.Generated) gives

    name, page_tokens, page_bytes, end_token
    chat(system, question) -> token ids         decode(ids) -> text
    new_cache(n_tokens) -> cache                step(ids, cache, at) -> logits of the last token
    export_page(cache, at) -> bytes             import_page(cache, at, data)
    best(logits) -> token id                    logits_bytes(logits) -> bytes

Logits with and without cached pages are bit-equal because both prefill in steps of one page that
begin at multiples of a page, because only pages that were computed in one such step are stored
(decoding one token at a time gives other bits), because the last token's page is always computed,
and because the engine itself uses K and V as they are stored, rounded to fp16.
"""
import dataclasses
import time

from pages import chain


@dataclasses.dataclass
class Answer:
    text: str
    n_tokens: int           # of the prompt
    hit_pages: int          # leading pages that were read instead of computed
    stored_pages: int
    unstored_pages: int     # the cache did not take them
    load_ms: float          # look-up and reading
    first_token_ms: float   # from the token ids to the first token, load_ms included
    store_ms: float
    decode_tokens_per_s: float


def load_prefix(engine, pages, digests, cache):
    """Reads the longest cached prefix into the cache; returns its length in pages."""
    there = pages.count_prefix(digests)
    for page_i in range(there):
        data = pages.load(digests[page_i])
        if data is None:
            return page_i
        engine.import_page(cache, page_i * engine.page_tokens, data)
    return there


def store_computed(engine, pages, digests, cache, hit_pages):
    """Stores the pages from hit_pages on that are not there; returns (stored, not taken)."""
    stored = unstored = 0
    for page_i in range(hit_pages, len(digests)):
        if pages.has(digests[page_i]):
            continue
        if pages.store(digests[page_i], engine.export_page(cache, page_i * engine.page_tokens)):
            stored += 1
        else:
            unstored += 1
    return stored, unstored


def answer(engine, pages, ids, max_tokens):
    """Answers the prompt; pages None = without a cache. Returns (first token's logits, Answer)."""
    size = engine.page_tokens
    cache = engine.new_cache(len(ids) + max_tokens)
    digests = chain(ids, size) if pages else []

    began = time.perf_counter()
    hit_pages = load_prefix(engine, pages, digests, cache) if pages else 0
    loaded = time.perf_counter()
    for at in range(hit_pages * size, len(ids), size):
        logits = engine.step(ids[at:at + size], cache, at)
    out = [engine.best(logits)]
    first = time.perf_counter()

    stored, unstored = store_computed(engine, pages, digests, cache, hit_pages) if pages else (0, 0)
    decode = time.perf_counter()
    while len(out) < max_tokens and out[-1] != engine.end_token:
        out.append(engine.best(engine.step(out[-1:], cache, len(ids) + len(out) - 1)))
    end = time.perf_counter()

    return logits, Answer(
        text=engine.decode(out).strip(), n_tokens=len(ids), hit_pages=hit_pages,
        stored_pages=stored, unstored_pages=unstored, load_ms=1e3 * (loaded - began),
        first_token_ms=1e3 * (first - began), store_ms=1e3 * (decode - first),
        decode_tokens_per_s=(len(out) - 1) / max(end - decode, 1e-9))

# SPDX-License-Identifier: Apache-2.0
"""KV pages as files of one directory.

A page is named by its chained hash: SHA-256 of the previous page's digest and of the page's tokens,
4 bytes each, little-endian. Same name = same prefix = same content, so a page is never rewritten.
Readers see whole pages only: a page is written under a temporary name and renamed.

This is all that an engine needs to know about a hicachefs mount. It works on any directory; only a
mount notices a damaged page. A page that cannot be had is a miss, never an error; a page that
cannot be stored is counted and forgotten.
"""
import hashlib
import os
import pathlib


def chain(ids, page_tokens):
    """The digests of the whole pages, but never of the last token's: its logits must be computed."""
    digests, digest = [], b""
    for at in range(0, (len(ids) - 1) // page_tokens * page_tokens, page_tokens):
        tokens = b"".join(token.to_bytes(4, "little") for token in ids[at:at + page_tokens])
        digest = hashlib.sha256(digest + tokens).digest()
        digests.append(digest)
    return digests


class PageDirectory:
    """The pages of one model in one directory, all of the same size."""

    def __init__(self, directory, page_bytes):
        self.directory = pathlib.Path(directory)
        self.page_bytes = page_bytes
        self.directory.mkdir(parents=True, exist_ok=True)

    def path(self, digest):
        return self.directory / f"{digest.hex()}.kv"

    def has(self, digest):
        try:
            return self.path(digest).stat().st_size == self.page_bytes
        except OSError:
            return False

    def count_prefix(self, digests):
        """How many leading pages are there, whole."""
        for page_i, digest in enumerate(digests):
            if not self.has(digest):
                return page_i
        return len(digests)

    def load(self, digest):
        """The bytes of a page, or None if it went away, shrank or was found bad since the look-up."""
        try:
            data = self.path(digest).read_bytes()
        except OSError:
            return None
        return data if len(data) == self.page_bytes else None

    def store(self, digest, data):
        """True if the page is there now. A full cache is no reason to fail a request."""
        temporary = f"{self.path(digest)}.tmp.{os.getpid()}"
        try:
            with open(temporary, "wb", buffering=0) as file:
                if file.write(data) != len(data):
                    raise OSError("short write")
            os.replace(temporary, self.path(digest))
        except OSError:
            try:
                os.unlink(temporary)
            except OSError:
                pass
            return False
        return True

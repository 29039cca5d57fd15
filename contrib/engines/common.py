# SPDX-License-Identifier: Apache-2.0
"""What the scripts that drive real engine code share: a directory to work in, pages whose bytes tell
where they belong, checks, figures. Each script takes that directory and ends with status 0, 1 when a
check failed, or 77 with a reason when the engine's code cannot be loaded."""

import hashlib
import importlib
import os
import sys
import time
import types

DEADLINE_S = 120


def skip(reason):
    print(f"SKIP: {reason}")
    sys.exit(77)


def directory():
    if len(sys.argv) != 2 or not os.path.isdir(sys.argv[1]):
        print(f"usage: {sys.argv[0]} DIRECTORY", file=sys.stderr)
        sys.exit(2)
    return os.path.abspath(sys.argv[1])


def check(what, got, want=True):
    if got != want:
        print(f"FAIL: {what}: got {got!r}, expected {want!r}")
        sys.exit(1)


def key(i):
    """A page hash as SGLang makes it: 64 hex digits."""
    return hashlib.sha256(b"page %d" % i).hexdigest()


def fill(buffer, seed):
    """Fills a writable buffer of bytes with a pattern of `seed`."""
    view = memoryview(buffer).cast("B")
    block = hashlib.shake_128(b"seed %d" % seed).digest(4096)
    for at in range(0, len(view), 4096):
        n = min(4096, len(view) - at)
        view[at : at + n] = block[:n]
        view[at : at + min(8, n)] = at.to_bytes(8, "little")[: min(8, n)]


def filled(size, seed):
    data = bytearray(size)
    fill(data, seed)
    return data


class Figures:
    """Time and bytes of one kind of call."""

    def __init__(self, engine):
        self.engine = engine
        self.rows = {}

    def timed(self, what, n_bytes, call):
        begin = time.perf_counter()
        result = call()
        took = time.perf_counter() - begin
        n, b, t = self.rows.get(what, (0, 0, 0.0))
        self.rows[what] = (n + 1, b + n_bytes, t + took)
        return result

    def show(self):
        for what, (n, n_bytes, seconds) in self.rows.items():
            rate = f", {n_bytes / seconds / 1e6:.0f} MB/s" if n_bytes else ""
            print(f"{self.engine} {what}: {n} calls, {seconds / n * 1e3:.3f} ms each{rate}")


def package_without_init(name, path):
    """An empty package whose modules are found in `path`: the real __init__ would import an engine."""
    module = types.ModuleType(name)
    module.__path__ = [path]
    sys.modules[name] = module
    return module


def load(name, why):
    try:
        return importlib.import_module(name)
    except Exception as error:  # whatever an unknown release raises
        skip(f"{why}: {error}")

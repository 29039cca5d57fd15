# SPDX-License-Identifier: Apache-2.0
"""LMCache's compiled fs module (the client of its fs_native adapter) on a directory: batches of set,
exists, get and delete, buffered, with a temporary directory, with O_DIRECT; two processes that store
one key at the same moment. Its torch libraries may be empty stand-ins: it uses nothing of them."""

import mmap
import multiprocessing
import os
import select
import sys

import common

CHUNK = 1 << 20


def load_client():
    site = next((p for p in sys.path if os.path.isdir(os.path.join(p, "lmcache"))), None)
    if not site:
        common.skip("lmcache is not installed")
    common.package_without_init("lmcache", os.path.join(site, "lmcache"))
    module = common.load("lmcache.lmcache_fs", "LMCache's fs module cannot be loaded")
    found = [n for n in os.listdir(site) if n.startswith("lmcache-") and n.endswith(".dist-info")]
    print("lmcache", found[0].split("-")[1].removesuffix(".dist") if found else "?")
    return module.LMCacheFSClient


def buffers(n):
    """Memory as LMCache's L1 gives it: page-aligned."""
    arena = mmap.mmap(-1, n * CHUNK)
    view = memoryview(arena)
    return [view[i * CHUNK : (i + 1) * CHUNK] for i in range(n)]


class Client:
    def __init__(self, cls, *args):
        self.native = cls(*args)
        self.fd = int(self.native.event_fd())

    def wait(self, future):
        """(ok, error, flags of the keys)"""
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        while True:
            if not poll.poll(common.DEADLINE_S * 1000):
                print("FAIL: no completion")
                sys.exit(1)
            for done in self.native.drain_completions():
                if int(done[0]) == int(future):
                    return bool(done[1]), done[2], done[3] if len(done) > 3 else None

    def set(self, keys, views):
        return self.wait(self.native.submit_batch_set(keys, views))

    def get(self, keys, views):
        return self.wait(self.native.submit_batch_get(keys, views))

    def exists(self, keys):
        return self.wait(self.native.submit_batch_exists(keys))

    def delete(self, keys):
        return self.wait(self.native.submit_batch_delete(keys))


def name(i, model="org-SEP-model"):
    return f"{model}@00010000@0@{common.key(i)}"


def all_flags(result, want):
    flags = [bool(f) for f in (result[2] or [])]
    return bool(flags) and all(f == want for f in flags)


def basics(client, figures, what, n=16):
    keys = [name(i, what) for i in range(n)]
    views = buffers(n)
    for i, view in enumerate(views):
        common.fill(view, i)
    common.check("exists before", all_flags(client.exists(keys), False))
    for at in range(0, n, 8):
        ok, error, _ = figures.timed(
            f"{what} set of 8", 8 * CHUNK, lambda: client.set(keys[at : at + 8], views[at : at + 8])
        )
        common.check(f"set ({error})", ok)
    common.check("exists", all_flags(figures.timed(f"{what} exists of {n}", 0, lambda: client.exists(keys)), True))
    back = buffers(n)
    for at in range(0, n, 8):
        ok, error, _ = figures.timed(
            f"{what} get of 8", 8 * CHUNK, lambda: client.get(keys[at : at + 8], back[at : at + 8])
        )
        common.check(f"get ({error})", ok)
    for i, view in enumerate(back):
        common.check("bytes", bytes(view) == bytes(views[i]))
    client.delete(keys[:4])
    common.check("exists after delete", all_flags(client.exists(keys[:4]), False))
    common.check("the others exist", all_flags(client.exists(keys[4:]), True))


def storer(queue, barrier, cls, args, who, rounds):
    client = Client(cls, *args)
    view = buffers(1)[0]
    failed = 0
    for i in range(rounds):
        common.fill(view, 10 * i + who)
        barrier.wait(common.DEADLINE_S)
        failed += not client.set([name(3000 + i)], [view])[0]
        barrier.wait(common.DEADLINE_S)
    queue.put(failed)


def race(cls, args, rounds=100):
    """Two processes store one key at once, a new one each round: a key that is there is not stored
    again. (stores that failed, loads that missed or were mixed)"""
    context = multiprocessing.get_context("fork")
    queue, barrier = context.Queue(), context.Barrier(3)
    others = [context.Process(target=storer, args=(queue, barrier, cls, args, who, rounds)) for who in (0, 1)]
    for other in others:
        other.start()
    client, view, mixed = Client(cls, *args), buffers(1)[0], 0
    for i in range(rounds):
        barrier.wait(common.DEADLINE_S)
        barrier.wait(common.DEADLINE_S)
        ok = client.get([name(3000 + i)], [view])[0]
        data = bytes(view)
        mixed += not ok or data not in (bytes(common.filled(CHUNK, 10 * i)), bytes(common.filled(CHUNK, 10 * i + 1)))
    failed = sum(queue.get(timeout=common.DEADLINE_S) for _ in others)
    for other in others:
        other.join(common.DEADLINE_S)
    return failed, mixed


def main():
    directory = common.directory()
    cls = load_client()
    figures = common.Figures("lmcache")
    args = {
        "buffered": (directory, 4, "", False, 0),
        "tmp_dir": (directory, 4, ".tmp", False, 4096),
        "o_direct": (directory, 4, ".tmp", True, 0),
    }
    # Processes before threads: each client has workers of its own.
    failed, mixed = race(cls, args["buffered"])
    print(f"lmcache race: {failed} of 200 stores failed, {mixed} of 100 loads missed or mixed")
    if os.environ.get("HC_ENGINES_OURS"):
        common.check("stores that failed", failed, 0)
        common.check("loads that missed or mixed", mixed, 0)
    for what, arg in args.items():
        client = Client(cls, *arg)
        basics(client, figures, what)
        client.native.close()
    figures.show()


main()

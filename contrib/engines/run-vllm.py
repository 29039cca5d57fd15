# SPDX-License-Identifier: Apache-2.0
"""vLLM's fs tier: its own io.py over its compiled file I/O module, on a directory: the O_DIRECT probe,
stores, look-ups and loads in batches, a missing block in the middle of a load, two processes. The
torch libraries may be empty stand-ins. Few calls: on Python 3.11 each drops a reference of None."""

import mmap
import multiprocessing
import os
import sys

import common

BLOCK = 1 << 20


def load_io():
    site = next((p for p in sys.path if os.path.isdir(os.path.join(p, "vllm"))), None)
    if not site:
        common.skip("vllm is not installed")
    for name in ("", ".v1", ".v1.kv_offload", ".v1.kv_offload.tiering", ".v1.kv_offload.tiering.fs"):
        name = "vllm" + name
        common.package_without_init(name, os.path.join(site, *name.split(".")))
    native = common.load("vllm.fs_io_C", "vLLM's file I/O module cannot be loaded")
    io = common.load("vllm.v1.kv_offload.tiering.fs.io", "vLLM's fs tier cannot be imported")
    common.check("the compiled module is used", io._HAS_FSIO_C)
    found = [n for n in os.listdir(site) if n.startswith("vllm-") and n.endswith(".dist-info")]
    print("vllm", found[0].split("-")[1].removesuffix(".dist") if found else "?")
    return native, io


def path(directory, i):
    digits = common.key(i)
    return os.path.join(directory, "org_model_0a1b2c3d4e5f_r0", digits[:3], f"{digits[3:5]}_g0", f"{digits}.bin")


def arena(n):
    return memoryview(mmap.mmap(-1, n * BLOCK))


def found(native, paths):
    return [bool(f) for f in native.batch_lookup(paths)]


def basics(native, io, directory, figures, direct, base):
    n, what = 32, "o_direct" if direct else "buffered"
    paths = [path(directory, base + i) for i in range(n)]
    offsets = [i * BLOCK for i in range(n)]
    view, back = arena(n), arena(n)
    for i in range(n):
        common.fill(view[i * BLOCK : (i + 1) * BLOCK], base + i)
    common.check("look-up before", any(found(native, paths)), False)
    figures.timed(f"{what} store of {n}", n * BLOCK, lambda: io.batch_store_block(paths, view, offsets, BLOCK, direct))
    common.check("look-up", all(figures.timed(f"look-up of {n}", 0, lambda: found(native, paths))))
    figures.timed(f"{what} load of {n}", n * BLOCK, lambda: io.batch_load_block(paths, back, offsets, BLOCK, direct))
    common.check("bytes", bytes(back) == bytes(view))
    # A hole: what lies before it is kept, the error says how many.
    os.unlink(paths[5])
    try:
        io.batch_load_block(paths, back, offsets, BLOCK, direct)
        common.check("a load over a hole fails", False)
    except OSError as error:
        common.check("loaded before the hole", error.num_succeeded, 5)
        common.check("its errno", error.errno, 2)
    io.batch_store_block(paths, view, offsets, BLOCK, direct)
    common.check("look-up again", all(found(native, paths)))


def storer(queue, io, directory):
    n = 16
    view = arena(n)
    for i in range(n):
        common.fill(view[i * BLOCK : (i + 1) * BLOCK], 5000 + i)
    paths = [path(directory, 5000 + i) for i in range(n)]
    try:
        io.batch_store_block(paths, view, [i * BLOCK for i in range(n)], BLOCK, True)
        back = arena(n)
        io.batch_load_block(paths, back, [i * BLOCK for i in range(n)], BLOCK, True)
        queue.put(bytes(back) == bytes(view))
    except OSError as error:
        queue.put(str(error))


def main():
    directory = common.directory()
    native, io = load_io()
    figures = common.Figures("vllm")
    # Before the first call: the suffix of a thread's temporaries is made at its first use.
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    others = [context.Process(target=storer, args=(queue, io, directory)) for _ in range(2)]
    for other in others:
        other.start()
    for other in others:
        common.check("a process of two", queue.get(timeout=common.DEADLINE_S))
    for other in others:
        other.join(common.DEADLINE_S)
    direct = io.probe_o_direct(directory)
    print("vllm O_DIRECT probe:", direct)
    basics(native, io, directory, figures, False, 0)
    if direct:
        basics(native, io, directory, figures, True, 100)
    left = [f for _, _, files in os.walk(directory) for f in files if f.endswith(".tmp")]
    common.check("temporaries left", left, [])
    figures.show()


main()

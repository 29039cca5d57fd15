# SPDX-License-Identifier: Apache-2.0
"""NIXL's agent with its POSIX plug-in on a directory: DRAM to FILE segments and back, over libaio,
io_uring and POSIX aio, by descriptor (O_DIRECT, in place, as SGLang's NIXL backend opens them) and by
path (rw: and ro:); existence queries."""

import ctypes
import mmap
import os
import sys
import time

import common

PAGE = 1 << 20
N = 8
QUEUES = {
    "libaio": {"use_aio": "true"},
    "io_uring": {"use_uring": "true"},
    "posix_aio": {"use_posix_aio": "true"},
}


def load_nixl():
    for name in ("nixl_cu13._api", "nixl_cu12._api", "nixl._api"):
        if not any(os.path.isdir(os.path.join(p, name.split(".")[0])) for p in sys.path):
            continue
        return common.load(name, "NIXL cannot be loaded")
    common.skip("nixl is not installed")


class Arena:
    def __init__(self):
        self.map = mmap.mmap(-1, N * PAGE)
        self.view = memoryview(self.map)
        self.at = ctypes.addressof(ctypes.c_char.from_buffer(self.map))

    def descs(self):
        return [(self.at + i * PAGE, PAGE, 0) for i in range(N)]


def transfer(agent, queue, operation, memory, files):
    handle = agent.initialize_xfer(operation, memory, files, agent.name, backends=["POSIX"])
    state = agent.transfer(handle)
    end = time.monotonic() + common.DEADLINE_S
    while state == "PROC" and time.monotonic() < end:
        state = agent.check_xfer_state(handle)
    agent.release_xfer_handle(handle)
    common.check(f"{queue} {operation}", state, "DONE")


def paths_of(directory, queue, part):
    names = [common.key(i) for i in range(N)]
    paths = [os.path.join(directory, n[:2], f"{n}_{queue}_{part}") for n in names]
    for path in paths:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    return paths


def by_descriptor(agent, queue, memory, arena, directory, figures):
    paths = paths_of(directory, queue, "k")
    for operation, flags in (("WRITE", os.O_RDWR | os.O_CREAT), ("READ", os.O_RDONLY)):
        if operation == "READ":
            arena.view[:] = bytes(N * PAGE)
        fds = [os.open(p, flags | os.O_DIRECT, 0o644) for p in paths]
        files = agent.register_memory([(0, PAGE, fd, "") for fd in fds], "FILE", backends=["POSIX"])
        descs = agent.get_xfer_descs([(0, PAGE, fd) for fd in fds], "FILE")
        figures.timed(
            f"{queue} {operation} of {N}", N * PAGE, lambda: transfer(agent, queue, operation, memory, descs)
        )
        agent.deregister_memory(files, backends=["POSIX"])
        for fd in fds:
            os.close(fd)
    common.check(f"{queue}: bytes", all(bytes(arena.view[i * PAGE : (i + 1) * PAGE]) == bytes(common.filled(PAGE, i)) for i in range(N)))
    return paths


def by_path(agent, queue, memory, arena, directory, figures):
    """The file must exist; the plug-in opens it itself, O_RDWR or O_RDONLY."""
    paths = paths_of(directory, queue, "p")
    for operation, prefix in (("WRITE", "rw:"), ("READ", "ro:")):
        if operation == "WRITE":
            for path in paths:
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
        else:
            arena.view[:] = bytes(N * PAGE)
        files = agent.register_memory(
            [(0, PAGE, 1000 + i, prefix + p) for i, p in enumerate(paths)], "FILE", backends=["POSIX"]
        )
        descs = agent.get_xfer_descs([(0, PAGE, 1000 + i) for i in range(N)], "FILE")
        figures.timed(
            f"{queue} {operation} of {N} by path", N * PAGE, lambda: transfer(agent, queue, operation, memory, descs)
        )
        agent.deregister_memory(files, backends=["POSIX"])
    common.check(f"{queue}: bytes by path", all(bytes(arena.view[i * PAGE : (i + 1) * PAGE]) == bytes(common.filled(PAGE, i)) for i in range(N)))


def main():
    directory = common.directory()
    api = load_nixl()
    print("nixl", api.__name__.split(".")[0], "agent and POSIX plug-in")
    figures = common.Figures("nixl")
    for queue, parameters in QUEUES.items():
        agent = api.nixl_agent(f"hc-{queue}", api.nixl_agent_config(backends=[]))
        try:
            agent.create_backend("POSIX", parameters)
        except Exception as error:
            print(f"nixl {queue}: not in this plug-in or kernel ({error})")
            continue
        arena = Arena()
        for i in range(N):
            common.fill(arena.view[i * PAGE : (i + 1) * PAGE], i)
        memory = agent.register_memory([(a, n, d, "") for a, n, d in arena.descs()], "DRAM", backends=["POSIX"])
        local = agent.get_xfer_descs(arena.descs(), "DRAM")
        paths = by_descriptor(agent, queue, local, arena, directory, figures)
        for i in range(N):
            common.fill(arena.view[i * PAGE : (i + 1) * PAGE], i)
        try:
            by_path(agent, queue, local, arena, directory, figures)
        except SystemExit:
            raise
        except Exception as error:
            print(f"nixl {queue}: by path: {error}")
        queries = [(0, PAGE, 0, p) for p in (paths[0], paths[0] + "-absent")]
        answers = agent.query_memory(queries, "POSIX", "FILE")
        common.check("query of a file that is there", answers[0] is not None)
        common.check("query of one that is not", answers[1] is None)
        agent.deregister_memory(memory, backends=["POSIX"])
    if not figures.rows:
        common.skip("no queue of the POSIX plug-in works here")
    figures.show()


main()

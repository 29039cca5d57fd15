# SPDX-License-Identifier: Apache-2.0
"""SGLang's HiCacheFile, its evictor and its StorageBackendFactory, unmodified, on a directory: set,
exists and get; threads that set and get the same new keys; two processes that store the same keys;
clear. The engine's packages are entered beside their __init__, which would import all of SGLang."""

import glob
import multiprocessing
import os
import sys
import threading
import types

import common
import numpy

PAGE = 1 << 20


class StandInTensor:
    """What HiCacheFile asks of torch.Tensor, over numpy: bytes, contiguous, viewed as uint8."""

    def __init__(self, array):
        self.array = array

    def numel(self):
        return self.array.size

    def element_size(self):
        return self.array.itemsize

    def contiguous(self):
        return self

    def view(self, dtype=None):
        return StandInTensor(self.array.view(dtype or numpy.uint8))

    def numpy(self):
        return self.array


def torch_module():
    """The real torch, or three methods of its tensors."""
    try:
        import torch

        return torch, lambda array: torch.from_numpy(array)
    except ImportError:
        torch = types.ModuleType("torch")
        torch.Tensor = StandInTensor
        torch.uint8 = numpy.uint8
        torch.__version__ = "none: tensors over numpy"
        sys.modules["torch"] = torch
        return torch, StandInTensor


def load_sglang():
    site = next((p for p in sys.path if os.path.isdir(os.path.join(p, "sglang", "srt"))), None)
    if not site:
        common.skip("sglang is not installed")
    for name in ("", ".srt", ".srt.mem_cache", ".srt.mem_cache.storage", ".srt.mem_cache.storage.file"):
        name = "sglang" + name
        common.package_without_init(name, os.path.join(site, *name.split(".")))
    for name in ("sglang.srt.utils", "sglang.srt.utils.common"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["sglang.srt.utils.common"].human_readable_int = int
    storage = common.load("sglang.srt.mem_cache.hicache_storage", "HiCacheFile cannot be imported")
    factory = common.load("sglang.srt.mem_cache.storage.backend_factory", "the factory cannot be imported")
    found = glob.glob(os.path.join(site, "sglang-*.dist-info"))
    version = os.path.basename(found[0]).split("-")[1].replace(".dist", "") if found else "?"
    return storage, factory.StorageBackendFactory, version


def config_of(storage, model):
    wanted = {
        "tp_rank": 0,
        "tp_size": 1,
        "pp_rank": 0,
        "pp_size": 1,
        "attn_cp_rank": 0,
        "attn_cp_size": 1,
        "is_mla_model": False,
        "enable_storage_metrics": False,
        "is_page_first_layout": False,
        "model_name": model,
    }
    fields = storage.HiCacheStorageConfig.__dataclass_fields__
    return storage.HiCacheStorageConfig(**{k: v for k, v in wanted.items() if k in fields})


def page(tensor_of, seed, size=PAGE):
    return tensor_of(numpy.frombuffer(common.filled(size, seed), dtype=numpy.uint8))


def empty(tensor_of, size=PAGE):
    return tensor_of(numpy.zeros(size, dtype=numpy.uint8))


def same(tensor, seed):
    return bytes(tensor.numpy()) == bytes(common.filled(tensor.numel(), seed))


def basics(cache, tensor_of, figures, n=24):
    for i in range(n):
        size = 16 * PAGE if i == n - 1 else PAGE
        common.check("exists before", cache.exists(common.key(i)), False)
        value = page(tensor_of, i, size)
        common.check("set", figures.timed("set", size, lambda: cache.set(common.key(i), value)))
    keys = [common.key(i) for i in range(n)]
    common.check("batch_exists", cache.batch_exists(keys + [common.key(10**6)]), n)
    for i in range(n):
        common.check("exists", figures.timed("exists", 0, lambda: cache.exists(common.key(i))))
        target = empty(tensor_of, 16 * PAGE if i == n - 1 else PAGE)
        got = figures.timed("get", target.numel(), lambda: cache.get(common.key(i), target))
        common.check("get", got is not None)
        common.check("bytes", same(target, i))
    common.check("get of an absent key", cache.get(common.key(10**6), empty(tensor_of)) is None)


def racing_threads(cache, tensor_of):
    """Four threads set and get the same 40 new keys: a published key is never missing."""
    missing, wrong, failed = [], [], []

    def work(who):
        for i in range(40):
            name = common.key(1000 + i)
            if not cache.set(name, page(tensor_of, 1000 + i)):
                failed.append(name)
            target = empty(tensor_of)
            if cache.get(name, target) is None:
                missing.append(name)
            elif not same(target, 1000 + i):
                wrong.append(name)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(common.DEADLINE_S)
    common.check("sets that failed", failed, [])
    common.check("gets that found nothing", missing, [])
    common.check("gets with wrong bytes", wrong, [])


def other_process(queue, make, tensor_of):
    cache = make()
    bad = 0
    for i in range(20):
        bad += not cache.set(common.key(2000 + i), page(tensor_of, 2000 + i))
        target = empty(tensor_of)
        bad += cache.get(common.key(2000 + i), target) is None or not same(target, 2000 + i)
    queue.put(bad)


def main():
    directory = common.directory()
    torch, tensor_of = torch_module()
    os.environ["SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR"] = directory
    storage, factory, version = load_sglang()
    print(f"sglang {version}, torch {torch.__version__}")
    figures = common.Figures("sglang")
    config = config_of(storage, "org/model")

    def make():
        return factory.create_backend("file", config, None)

    cache = make()
    basics(cache, tensor_of, figures)
    racing_threads(cache, tensor_of)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    others = [context.Process(target=other_process, args=(queue, make, tensor_of)) for _ in range(2)]
    for other in others:
        other.start()
    for other in others:
        common.check("errors of a process", queue.get(timeout=common.DEADLINE_S), 0)
        other.join(common.DEADLINE_S)
    # A second instance is a second engine: it finds what the first stored.
    again = make()
    common.check("found by a second engine", again.batch_exists([common.key(i) for i in range(24)]), 24)
    common.check("temporaries left", [n for n in os.listdir(directory) if n.endswith(".tmp")], [])
    cache.clear()
    common.check("exists after clear", again.exists(common.key(0)), False)
    figures.show()


main()

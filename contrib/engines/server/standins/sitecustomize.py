# SPDX-License-Identifier: Apache-2.0
"""Lets SGLang's server run without a GPU: copies between pools by index, no pinning, no registration.
SGLang itself is unmodified: its modules are completed right after they were imported."""

import importlib.abc
import importlib.machinery
import sys


def transfer_kv_direct(src_layers, dst_layers, src_indices, dst_indices, page_size):
    src, dst = src_indices.long(), dst_indices.long()
    for source, target in zip(src_layers, dst_layers):
        target[dst] = source[src].to(target.device)


def no_kernel(*args, **kwargs):
    raise NotImplementedError("only --hicache-mem-layout layer_first is stood in for")


def complete_pools(module):
    module.transfer_kv_direct = transfer_kv_direct
    for name in ("transfer_kv_all_layer_direct_lf_pf", "transfer_kv_per_layer_direct_pf_lf"):
        setattr(module, name, no_kernel)


def complete_common(module):
    for name in ("_cuda_host_register", "_cuda_host_unregister", "_cuda_host_unregister_ranges"):
        setattr(module, name, lambda *args, **kwargs: None)


def complete_base(module):
    begin = module.HostKVCache.__init__

    def init(self, *args, **kwargs):
        if "pin_memory" in kwargs:
            kwargs["pin_memory"] = False
        begin(self, *args, **kwargs)

    module.HostKVCache.__init__ = init


POOLS = "sglang.srt.mem_cache.pool_host."
COMPLETE = {
    POOLS + "mha": complete_pools,
    POOLS + "mla": complete_pools,
    POOLS + "common": complete_common,
    POOLS + "base": complete_base,
}


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name not in COMPLETE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec and spec.loader:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                COMPLETE[name](module)

            spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Finder())

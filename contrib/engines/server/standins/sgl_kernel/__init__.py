# SPDX-License-Identifier: Apache-2.0
"""The two operators of SGLang's CPU kernels that a server without a GPU needs, in plain torch. Any other
name exists, and raises when it is called."""

import ctypes

import torch


def assign_req_to_token_pool_cpu(req_pool_indices, req_to_token, start_offset, end_offset, out_cache_loc, *rest):
    at = 0
    for request, start, end in zip(req_pool_indices.tolist(), start_offset.tolist(), end_offset.tolist()):
        n = end - start
        req_to_token[request, start:end] = out_cache_loc[at : at + n].to(req_to_token.dtype)
        at += n


def copy_all_layer_kv_cache_cpu(data_ptrs, strides, target, source, *rest):
    sources, targets = source.tolist(), target.tolist()
    for pointer, stride in zip(data_ptrs.tolist(), strides.tolist()):
        rows = [ctypes.string_at(pointer + s * stride, stride) for s in sources]
        for t, row in zip(targets, rows):
            ctypes.memmove(pointer + t * stride, row, stride)


class _Absent:
    def __init__(self, name):
        self.name = name

    def __call__(self, *args, **kwargs):
        raise NotImplementedError(f"sgl_kernel.{self.name} is stood in for, and was called")


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return _Absent(name)

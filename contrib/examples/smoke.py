# SPDX-License-Identifier: Apache-2.0
"""The library from another language, with nothing but ctypes: publish a page, read it back.

    python3 smoke.py [libhicache.so.0]
"""
import ctypes as c
import sys


class Params(c.Structure):
    # The head of struct hicache_params; size says how much of it there is.
    _fields_ = [("size", c.c_size_t), ("pool_bytes", c.c_uint64)]


class HashParams(c.Structure):
    _fields_ = [("size", c.c_size_t), ("page_tokens", c.c_uint32), ("token_bytes", c.c_uint32),
                ("flags", c.c_uint32), ("prior", c.c_void_p), ("extra_key", c.c_char_p),
                ("extra_key_bytes", c.c_size_t), ("salt", c.c_char_p), ("salt_bytes", c.c_size_t)]


class Page(c.Structure):
    _fields_ = [("data", c.c_void_p), ("size_bytes", c.c_uint64), ("lease", c.c_uint64 * 3)]


Hash = c.c_uint8 * 32
SPEC = (b"model=example/tiny attention=mha layers=2 kv_heads=2 head_dim=64 dtype=fp16 "
        b"page_tokens=4 layout=page_unified")
CREATE = 1


def load(path):
    lib = c.CDLL(path)
    lib.hicache_version.restype = c.c_char_p
    lib.hicache_series_page_bytes.restype = c.c_uint64
    lib.hicache_series_page_bytes.argtypes = [c.c_void_p]
    u32, size, ptr = c.c_uint32, c.c_size_t, c.c_void_p
    for name, args in {
        "hicache_open": [c.c_char_p, ptr, ptr], "hicache_close": [ptr],
        "hicache_space_open": [ptr, c.c_char_p, u32, ptr, ptr], "hicache_space_close": [ptr],
        "hicache_series_open": [ptr, c.c_char_p, c.c_char_p, u32, ptr],
        "hicache_series_close": [ptr],
        "hicache_page_hash": [ptr, ptr, size, ptr, size, ptr],
        "hicache_exists_prefix": [ptr, size, ptr, size, u32, ptr],
        "hicache_reserve": [ptr, c.c_uint64, c.c_int, size, u32, ptr, ptr],
        "hicache_publish": [ptr, ptr, ptr, size, ptr, ptr],
        "hicache_acquire": [ptr, ptr, size, u32, ptr, ptr], "hicache_release": [ptr, ptr, size],
        "hicache_stats_get": [ptr, c.c_char_p, ptr],
    }.items():
        getattr(lib, name).argtypes = args
    return lib


def must(rc):
    if rc:
        raise OSError(-rc, "hicache")


def main():
    lib = load(sys.argv[1] if len(sys.argv) > 1 else "libhicache.so.0")
    params = Params(c.sizeof(Params), 128 << 20)
    cache, space, series = c.c_void_p(), c.c_void_p(), c.c_void_p()
    must(lib.hicache_open(b"mem:", c.byref(params), c.byref(cache)))
    must(lib.hicache_space_open(cache, b"example", CREATE, None, c.byref(space)))
    must(lib.hicache_series_open(space, SPEC, None, CREATE, c.byref(series)))

    tokens = (c.c_uint32 * 8)(*range(8))
    hashes, n = (Hash * 2)(), c.c_size_t()
    how = HashParams(c.sizeof(HashParams), 4, 4)
    must(lib.hicache_page_hash(c.byref(how), tokens, 8, hashes, 2, c.byref(n)))
    assert n.value == 2

    pages, results = (Page * 2)(), (c.c_int * 2)()
    page_bytes = lib.hicache_series_page_bytes(series)
    must(lib.hicache_reserve(series, 0, -1, 2, 2000, pages, c.byref(n)))
    assert n.value == 2 and pages[0].size_bytes == page_bytes
    for i in range(2):
        c.memset(pages[i].data, 0x41 + i, page_bytes)
    must(lib.hicache_publish(series, pages, hashes, 2, None, results))
    assert list(results) == [0, 0]

    must(lib.hicache_exists_prefix(c.byref(series), 1, hashes, 2, 0, c.byref(n)))
    assert n.value == 2
    must(lib.hicache_acquire(series, hashes, 2, 2000, pages, c.byref(n)))
    got = [c.string_at(pages[i].data, page_bytes) for i in range(n.value)]
    assert got == [b"A" * page_bytes, b"B" * page_bytes]
    must(lib.hicache_release(cache, pages, n))
    value = c.c_uint64()
    must(lib.hicache_stats_get(cache, b"published", c.byref(value)))
    assert value.value == 2

    must(lib.hicache_series_close(series))
    must(lib.hicache_space_close(space))
    must(lib.hicache_close(cache))
    print("hicache", lib.hicache_version().decode(), "two pages of", page_bytes, "bytes: good")


if __name__ == "__main__":
    main()

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Goal: what is to run on a GPU runs to its end, so that nothing but the figures is left to find out
# there; where there is no GPU it says so, and what is missing is named. Method: contrib/check-device
# builds itself from the tree and runs whole, in small sizes, with the fake driver in the place of
# libcuda.so.1.
. "${top_srcdir:-.}/tests/functions.sh"

check_device=$top_srcdir/contrib/check-device
mkdir "$tmp/lib"
ln -s "$(cd "$top_builddir" && pwd -P)/tests/fake-cuda/.libs/fake-cuda.so" "$tmp/lib/libcuda.so.1"
LD_LIBRARY_PATH=$tmp/lib
HC_CHECK_DEVICE_SMALL=1
NVCC_ARCHS='-gencode arch=compute_80,code=sm_80'
CFLAGS='-O1'
export LD_LIBRARY_PATH HC_CHECK_DEVICE_SMALL NVCC_ARCHS CFLAGS
cd "$tmp" || exit 99

# run_it DIR: its exit status in $rc, what it printed in $out.
run_it()
{
	out=$(sh "$check_device" "$1" 2>&1)
	rc=$?
}

# says TEXT: it printed that.
says()
{
	case $out in
	*"$1"*) ;;
	*) fail "check-device ended with $rc and did not say \"$1\": $out" ;;
	esac
}

# A plain program cannot open a library with a sanitizer in it: then those of this build are taken.
if [ -n "${HC_SANITIZE:-}" ]; then
	HC_CHECK_DEVICE_PROGRAMS=$(cd "$top_builddir" && pwd -P)/tests
	export HC_CHECK_DEVICE_PROGRAMS
else
	out=$(NVCC=/nonexistent/nvcc sh "$check_device" none 2>&1) && fail "no nvcc is no error"
	says 'no such nvcc: set NVCC'
	out=$(CC=false sh "$check_device" none 2>&1) && fail "no compiler is no error"
	says 'package libc6-dev'
fi

# The product by the kernel of our own first, for no library is named.
HC_CHECK_DEVICE_CUBLAS=none
export HC_CHECK_DEVICE_CUBLAS
run_it all
[ "$rc" = 0 ] || fail "exit status $rc: $(echo "$out" | grep -v '(not judged)')"
for text in 'test-device: 15 tests passed' 'test-device-pages: 1 tests passed' 'test-device-order: 12 tests passed' \
	'Device fake GPU' 'One contiguous copy, GB/s' 'page_first_direct  direct' 'page_head' 'Load and write at once' \
	'own kernel in float' 'Registration, each GiB' 'load and write at once / both peaks' 'JSON in'; do
	says "$text"
done
[ "$(grep -c '^    {"model"' all/check-device.json)" -ge 150 ] || fail "few transfers in the JSON"
[ "$(grep -c '^    {"beside"' all/check-device.json)" = 5 ] || fail "not all products in the JSON"
[ "$(grep -c '^    {"memory"' all/check-device.json)" = 6 ] || fail "not all kinds of memory in the JSON"
if command -v python3 >/dev/null 2>&1; then
	python3 -m json.tool all/check-device.json >/dev/null || fail "the JSON is none"
fi

# With cuBLAS, and the table alone.
table=$tmp/all/check-device
[ -n "${HC_CHECK_DEVICE_PROGRAMS:-}" ] && table=$HC_CHECK_DEVICE_PROGRAMS/check-device/check-device
out=$("$table" --small --no-batch --seconds=0 --cublas="$tmp/lib/libcuda.so.1" 2>&1)
rc=$?
[ "$rc" = 0 ] || fail "the table alone: exit status $rc: $out"
says 'cuBLAS in bfloat16'
says 'single copies'
says 'time was up'
out=$("$table" --tiny 2>&1)
[ $? = 2 ] || fail "an unknown option is no error"
says '--tiny: not an option'

# A driver without a device; and, where no driver is installed, none at all.
out=$(FAKE_CUDA_NO_DEVICES=1 "$table" --small 2>&1)
rc=$?
[ "$rc" = 77 ] || fail "no device: exit status $rc"
says 'SKIP: no GPU can be opened here'
FAKE_CUDA_NO_DEVICES=1 HC_CHECK_DEVICE_PROGRAMS=${HC_CHECK_DEVICE_PROGRAMS:-$tmp/all} run_it all
[ "$rc" = 77 ] || fail "no device: exit status $rc"
says 'SKIP: no GPU here: libcuda.so.1 is in'
rm "$tmp/lib/libcuda.so.1"
run_it all
case $out in
*'there is no libcuda.so.1'*) [ "$rc" = 77 ] || fail "no driver: exit status $rc" ;;
*) echo "a driver is installed here: its absence is not tested" ;;
esac
exit 0

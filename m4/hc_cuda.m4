dnl SPDX-License-Identifier: Apache-2.0
dnl Optional parts are yes (an error when it cannot be had), no, or auto.
dnl
dnl HC_CUDA: the toolkit's headers and nvcc. Sets NVCC, CUDA_CPPFLAGS, NVCC_ARCHS, hc_cuda (for the
dnl summary) and the automake condition CUDA. Nothing is linked: the driver is opened at run time.
AC_DEFUN([HC_CUDA], [
	AC_ARG_WITH([cuda],
		[AS_HELP_STRING([--with-cuda=auto|yes|no|DIR],
			[build the device cuda; needs nvcc and cuda.h of a toolkit, in PATH, /usr/local/cuda or DIR @<:@auto@:>@])],
		[], [with_cuda=auto])
	hc_cuda_want=$with_cuda
	hc_cuda_path="$PATH:/usr/local/cuda/bin"
	AS_CASE([$with_cuda],
		[auto|yes|no], [],
		[/*], [hc_cuda_want=yes; hc_cuda_path=$with_cuda/bin],
		[AC_MSG_ERROR([--with-cuda=$with_cuda: use auto, yes, no or the toolkit's folder])])
	hc_cuda=no
	hc_cuda_why='it was not wanted'
	AS_IF([test "$hc_cuda_want" != no], [HC_CUDA_FIND])
	AS_IF([test "$hc_cuda_want" = yes && test "$hc_cuda" = no],
		[AC_MSG_ERROR([--with-cuda: $hc_cuda_why. Install the CUDA toolkit (11.4 or later), name its folder with --with-cuda=DIR, or leave it out])])
	AC_SUBST([CUDA_CPPFLAGS])
	AC_SUBST([NVCC_ARCHS])
	AM_CONDITIONAL([CUDA], [test "$hc_cuda" != no])
])

AC_DEFUN([HC_CUDA_FIND], [
	AC_PATH_PROG([NVCC], [nvcc], [], [$hc_cuda_path])
	hc_cuda_why='nvcc was not found'
	AS_IF([test -n "$NVCC"], [
		hc_cuda_root=$(dirname "$(dirname "$(readlink -f "$NVCC")")")
		AS_IF([test -f "$hc_cuda_root/include/cuda.h"], [CUDA_CPPFLAGS="-isystem $hc_cuda_root/include"])
		hc_cuda_why="$NVCC is there, but its headers cuda.h and cudaTypedefs.h are not"
		hc_save_CPPFLAGS=$CPPFLAGS
		CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS"
		AC_MSG_CHECKING([for the headers of the CUDA driver])
		AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <cuda.h>
			#include <cudaTypedefs.h>]], [[PFN_cuGetProcAddress_v11030 f = 0; return f != 0;]])],
			[hc_cuda_headers=yes], [hc_cuda_headers=no])
		AC_MSG_RESULT([$hc_cuda_headers])
		CPPFLAGS=$hc_save_CPPFLAGS
		AS_IF([test "$hc_cuda_headers" = yes], [HC_CUDA_ARCHS])
	])
])

dnl Machine code for what is out there, and an intermediate form for what is not yet.
AC_DEFUN([HC_CUDA_ARCHS], [
	NVCC_ARCHS=
	hc_cuda_list=
	hc_cuda_has=$("$NVCC" --list-gpu-arch 2>/dev/null)
	for hc_arch in 80 90 100; do
		AS_CASE([$hc_cuda_has], [*compute_$hc_arch*], [
			NVCC_ARCHS="$NVCC_ARCHS -gencode arch=compute_$hc_arch,code=sm_$hc_arch"
			hc_cuda_list="$hc_cuda_list sm_$hc_arch"
			hc_cuda_ptx=$hc_arch])
	done
	AS_IF([test -n "$hc_cuda_list"],
		[NVCC_ARCHS="$NVCC_ARCHS -gencode arch=compute_80,code=compute_80 -gencode arch=compute_$hc_cuda_ptx,code=compute_$hc_cuda_ptx"])
	hc_cuda_why="$NVCC cannot compile a kernel for sm_80, sm_90 or sm_100 (its host compiler may not suit it)"
	AC_MSG_CHECKING([whether nvcc compiles kernels])
	mkdir -p conftest.cuda
	echo 'extern "C" __global__ void f(int *p) { *p = 1; }' >conftest.cuda/f.cu
	AS_IF([test -n "$hc_cuda_list" && "$NVCC" -fatbin $NVCC_ARCHS -o conftest.cuda/f.fatbin conftest.cuda/f.cu >&AS_MESSAGE_LOG_FD 2>&1],
		[hc_cuda="yes ($hc_cuda_root;$hc_cuda_list)"; AC_MSG_RESULT([$hc_cuda_list])],
		[AC_MSG_RESULT([no])])
	rm -rf conftest.cuda
])

/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for the torch libraries that LMCache's and vLLM's compiled file modules name and do not
 * use. One of their builds takes a part of libstdc++ 13 from libtorch; older machines lack it. It
 * is given here: string::_M_replace_cold replaces n_old bytes at `at` by n_new bytes of `from`,
 * which may overlap them, and moves the n_tail bytes behind. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

void _ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE15_M_replace_coldEPcmPKcmm(
	void *string, char *at, size_t n_old, const char *from, size_t n_new, size_t n_tail);

void _ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE15_M_replace_coldEPcmPKcmm(
	void *string, char *at, size_t n_old, const char *from, size_t n_new, size_t n_tail)
{
	char *copy = malloc(n_new ? n_new : 1);

	(void)string;
	if (!copy)
		abort();
	memcpy(copy, from, n_new);
	memmove(at + n_new, at + n_old, n_tail);
	memcpy(at, copy, n_new);
	free(copy);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A fuzz target is one function in tests/fuzz/fuzz-<name>.c and some inputs in
 * tests/fuzz/corpus/<name>/. With --enable-fuzz it is a libFuzzer program; else standalone.c runs
 * it over the corpus and over seeded mutations, as a part of `make check`. A target checks what
 * must hold of any input (with hc_assert) and returns 0; it keeps no state. */
#ifndef HC_FUZZ_H
#define HC_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif

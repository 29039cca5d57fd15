/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the kernels move 16 bytes with each access, all loads of a thread before its first store,
 * and nothing is spilled to the stack. Method: the machine code itself, for the toolkit here need
 * not have a disassembler: instructions are 16 bytes; the low 12 bits of the first word are the
 * operation, bits 9 to 11 of the second the width (6: 128 bits). */
#include "tests/hctest.h"
#include "util/base.h"

#include <elf.h>

/* Loads and stores of global and generic memory, and of the stack. */
enum op { OP_OTHER, OP_LDG, OP_STG, OP_GENERIC, OP_LOCAL };

static enum op op_of(uint64_t word)
{
	switch (word & 0xfff) {
	case 0x381:
	case 0x981:
		return OP_LDG;
	case 0x386:
	case 0x986:
		return OP_STG;
	case 0x380:
	case 0x980:
	case 0x385:
	case 0x985:
		return OP_GENERIC;
	case 0x383:
	case 0x983:
	case 0x387:
	case 0x987:
		return OP_LOCAL;
	default:
		return OP_OTHER;
	}
}

static unsigned char *read_cubin(const char *arch, size_t *size_p)
{
	const char *top = getenv("top_builddir");
	unsigned char *bytes;
	char path[4096];
	FILE *file;
	long size;

	snprintf(path, sizeof(path), "%s/src/device/cuda/kernels-%s.cubin", top ? top : ".", arch);
	file = fopen(path, "rb");
	if (!file)
		fail_msg("%s: %s", path, strerror(errno));
	hc_assert(file);
	assert_int_equal(fseek(file, 0, SEEK_END), 0);
	size = ftell(file);
	if (!size) {
		fclose(file);
		hc_test_skip("nvcc does not know this architecture");
	}
	assert_true(size > (long)sizeof(Elf64_Ehdr));
	rewind(file);
	bytes = malloc((size_t)size);
	assert_non_null(bytes);
	assert_int_equal(fread(bytes, 1, (size_t)size, file), size);
	fclose(file);
	*size_p = (size_t)size;
	return bytes;
}

static void check_kernel(const char *name, const unsigned char *code, uint64_t size_bytes)
{
	uint32_t n_ldg = 0, n_stg = 0;

	for (uint64_t at = 0; at + 16 <= size_bytes; at += 16) {
		uint64_t low, high;
		enum op op;

		memcpy(&low, code + at, 8);
		memcpy(&high, code + at + 8, 8);
		op = op_of(low);
		if (op == OP_OTHER)
			continue;
		if (op == OP_GENERIC || op == OP_LOCAL || (high >> 9 & 7) != 6)
			fail_msg("%s: access at %#llx is not one of 128 bits to global memory",
				 name, (unsigned long long)at);
		if (op == OP_LDG)
			assert_int_equal(n_stg, 0);
		n_ldg += op == OP_LDG;
		n_stg += op == OP_STG;
	}
	/* Four units in flight: a page pair and the data for each. */
	assert_int_equal(n_ldg, 8);
	assert_int_equal(n_stg, 4);
}

static void check_arch(const char *arch)
{
	uint32_t n_kernels = 0;
	size_t size;
	unsigned char *cubin = read_cubin(arch, &size);
	const Elf64_Ehdr *header = (const void *)cubin;
	const Elf64_Shdr *sections = (const void *)(cubin + header->e_shoff);
	const char *names;

	assert_memory_equal(header->e_ident, ELFMAG, SELFMAG);
	assert_true(header->e_shoff + header->e_shnum * sizeof(*sections) <= size);
	names = (const char *)cubin + sections[header->e_shstrndx].sh_offset;
	for (int i = 0; i < header->e_shnum; i++) {
		const char *name = names + sections[i].sh_name;

		if (strncmp(name, ".text.hc_page_", 14) != 0)
			continue;
		assert_true(sections[i].sh_offset + sections[i].sh_size <= size);
		check_kernel(name, cubin + sections[i].sh_offset, sections[i].sh_size);
		n_kernels++;
	}
	assert_int_equal(n_kernels, 3);
	free(cubin);
}

static void test_sm_80(void **state)
{
	check_arch("sm_80");
}

static void test_sm_90(void **state)
{
	check_arch("sm_90");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sm_80),
		cmocka_unit_test(test_sm_90),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

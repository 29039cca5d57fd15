/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs of catalog rows. Goal: what is packed is read back the same, and nothing else is read.
 * Random rows; the fuzz target of the same name does damaged ones. */
#include "hctest.h"

#include "index/rows.h"
#include "util/rng.h"

/* Random rows of all kinds come back as they went; each cut and each newer version is refused. */
static void random_text(struct hc_rng *rng, char *text, size_t min, size_t max)
{
	size_t n = min + hc_rng_below(rng, max - min + 1);

	for (size_t i = 0; i < n; i++)
		text[i] = (char)('0' + hc_rng_below(rng, 70)) /* no slash, no dot */;
	text[n] = 0;
}

/* Small and large numbers alike. */
static uint64_t random_number(struct hc_rng *rng, uint64_t max)
{
	uint64_t v = hc_rng_next(rng) >> hc_rng_below(rng, 64);

	return hc_rng_below(rng, 10) ? v & max : max;
}

static void random_page(struct hc_rng *rng, struct hc_row_page *row)
{
	memset(row, 0, sizeof(*row));
	for (size_t i = 0; i < HC_HASH_BYTES; i++)
		row->hash.bytes[i] = (uint8_t)hc_rng_next(rng);
	if (hc_rng_below(rng, 2))
		row->parent.bytes[hc_rng_below(rng, HC_HASH_BYTES)] = 1;
	row->size_bytes = random_number(rng, UINT32_MAX);
	row->checksum = hc_rng_next(rng);
	row->mtime_ns = hc_rng_next(rng);
	if (hc_rng_below(rng, 2))
		row->file = random_number(rng, UINT64_MAX);
	if (hc_rng_below(rng, 2))
		row->offset = random_number(rng, UINT64_MAX);
	row->series = (uint32_t)random_number(rng, UINT32_MAX);
	row->depth = (uint32_t)random_number(rng, (1u << 24) - 1);
	row->dir = (uint32_t)random_number(rng, UINT32_MAX);
	row->uid = (uint32_t)random_number(rng, UINT32_MAX);
	row->gid = (uint32_t)random_number(rng, UINT32_MAX);
	row->mode = (uint16_t)random_number(rng, 07777);
	row->disk = (uint16_t)random_number(rng, UINT16_MAX);
	row->flags = (uint16_t)hc_rng_below(rng, 4);
	if (hc_rng_below(rng, 3) == 0)
		random_text(rng, row->name, 1, HC_PATH_BYTES_MAX);
}

static void test_page_rows(void **state)
{
	struct hc_row_page *row = hc_zalloc(sizeof(*row)), *back = hc_zalloc(sizeof(*back));
	uint8_t packed[HC_ROW_BYTES_MAX];
	struct hc_rng rng;

	hc_rng_seed(&rng, 17);
	for (int i = 0; i < 20000; i++) {
		size_t n;

		random_page(&rng, row);
		n = hc_row_page_pack(row, packed);
		assert_true(n <= sizeof(packed));
		memset(back, 0, sizeof(*back)); /* behind the name nothing is written */
		assert_int_equal(hc_row_page_unpack(packed, n, back), 0);
		assert_memory_equal(row, back, sizeof(*row));
		assert_int_equal(hc_row_page_unpack(packed, hc_rng_below(&rng, n), back), -EBADMSG);
		if (n < sizeof(packed)) {
			packed[n] = 0;
			assert_int_equal(hc_row_page_unpack(packed, n + 1, back), -EBADMSG);
		}
		packed[0]++;
		assert_int_equal(hc_row_page_unpack(packed, n, back), -EPROTO);
		packed[0] = 0;
		assert_int_equal(hc_row_page_unpack(packed, n, back), -EBADMSG);
		assert_memory_equal(row, back, sizeof(*row));
	}
	free(row);
	free(back);
}

static void test_other_rows(void **state)
{
	uint8_t packed[HC_ROW_BYTES_MAX];
	struct hc_rng rng;

	hc_rng_seed(&rng, 19);
	for (int i = 0; i < 5000; i++) {
		struct hc_row_space space = {
			hc_rng_next(&rng), random_number(&rng, UINT64_MAX), 7, 8, 0711, 9};
		struct hc_row_file file = {
			.size_bytes = random_number(&rng, INT64_MAX), .dir = 3, .uid = 4};
		struct hc_row_dir dir = {
			.mtime_ns = hc_rng_next(&rng), .parent = 5, .gid = 6, .mode = 01777};
		struct hc_row_space space_back;
		struct hc_row_file file_back;
		struct hc_row_dir dir_back;
		size_t n;

		random_text(&rng, file.name, 1, HC_NAME_BYTES_MAX);
		random_text(&rng, dir.name, 0, HC_NAME_BYTES_MAX);
		n = hc_row_space_pack(&space, packed);
		assert_int_equal(hc_row_space_unpack(packed, n, &space_back), 0);
		assert_int_equal(space.quota_bytes, space_back.quota_bytes);
		assert_int_equal(space.max_age_s, space_back.max_age_s);
		assert_int_equal(space_back.uid * 100 + space_back.gid * 10 + space_back.priority,
				 789);
		assert_int_equal(space_back.mode, 0711);
		assert_int_equal(hc_row_space_unpack(packed, n - 1, &space_back), -EBADMSG);
		n = hc_row_file_pack(&file, packed);
		assert_int_equal(hc_row_file_unpack(packed, n, &file_back), 0);
		assert_int_equal(file.size_bytes, file_back.size_bytes);
		assert_int_equal(file_back.dir * 10 + file_back.uid, 34);
		assert_string_equal(file.name, file_back.name);
		assert_int_equal(hc_row_file_unpack(packed, n - 1, &file_back), -EBADMSG);
		n = hc_row_dir_pack(&dir, packed);
		assert_int_equal(hc_row_dir_unpack(packed, n, &dir_back), 0);
		assert_int_equal(dir.mtime_ns, dir_back.mtime_ns);
		assert_int_equal(dir_back.parent * 10 + dir_back.gid, 56);
		assert_int_equal(dir_back.mode, 01777);
		assert_string_equal(dir.name, dir_back.name);
		assert_int_equal(hc_row_dir_unpack(packed, n - 1, &dir_back), -EBADMSG);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_page_rows),
	cmocka_unit_test(test_other_rows),
};

HC_TEST_MAIN(tests)

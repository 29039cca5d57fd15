/* SPDX-License-Identifier: Apache-2.0 */
/* xoshiro256** (Blackman and Vigna, public domain algorithm), seeded by splitmix64. See rng.h. */
#include "util/rng.h"

#include <sys/random.h>

static uint64_t hc_rotl(uint64_t x, int k)
{
	return (x << k) | (x >> (64 - k));
}

void hc_rng_seed(struct hc_rng *rng, uint64_t seed)
{
	for (int i = 0; i < 4; i++) {
		uint64_t z = (seed += 0x9e3779b97f4a7c15u);

		z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
		z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
		rng->s[i] = z ^ (z >> 31);
	}
}

uint64_t hc_rng_next(struct hc_rng *rng)
{
	uint64_t *s = rng->s;
	uint64_t result = hc_rotl(s[1] * 5, 7) * 9;
	uint64_t t = s[1] << 17;

	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = hc_rotl(s[3], 45);
	return result;
}

uint64_t hc_rng_below(struct hc_rng *rng, uint64_t n)
{
	hc_assert(n > 0);
	return (uint64_t)(((unsigned __int128)hc_rng_next(rng) * n) >> 64);
}

void hc_rng_system(void *buf, size_t size_bytes)
{
	uint8_t *p = buf;

	while (size_bytes) {
		ssize_t n = getrandom(p, size_bytes, 0);

		if (n < 0) {
			hc_assert(errno == EINTR);
			continue;
		}
		p += n;
		size_bytes -= (size_t)n;
	}
}

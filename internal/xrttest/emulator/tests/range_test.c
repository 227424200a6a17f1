// The range allocator returns each byte once, respects alignment, and reuses gaps.
#include "../range.h"
#include "test.h"

#include <stdbool.h>
#include <stdlib.h>

static void fills_gaps(void)
{
	range_space s = {.base = 0x1000, .size = 0x8000};
	uint64_t a = range_alloc(&s, 0x1000, 0x1000), b = range_alloc(&s, 0x2000, 0x1000),
		c = range_alloc(&s, 0x1000, 0x1000);
	CHECK(a == 0x1000 && b == 0x2000 && c == 0x4000 && s.taken == 0x4000);
	range_free(&s, b);
	CHECK(range_alloc(&s, 0x3000, 0x1000) == 0x5000); // the gap is too small
	CHECK(range_alloc(&s, 0x1000, 0x1000) == 0x2000);
	CHECK(range_alloc(&s, 0x1000, 0x1000) == 0x3000);
	CHECK(range_alloc(&s, 0x2000, 0x1000) == ~0ull); // 0x1000 is left
	CHECK(range_alloc(&s, 0x1000, 0x1000) == 0x8000);
	CHECK(range_alloc(&s, 1, 1) == ~0ull);
	s.size += 0x1000; // the heap has grown
	CHECK(range_alloc(&s, 0x1000, 0x1000) == 0x9000);
	range_clear(&s);
	CHECK(s.taken == 0 && s.used == NULL);
}

static void rejects_invalid_sizes(void)
{
	range_space s = {.base = 0x1000, .size = 0x1000};
	CHECK(range_alloc(&s, 0, 1) == ~0ull);
	CHECK(range_alloc(&s, 0x1001, 1) == ~0ull);
	CHECK(range_alloc(&s, ~0ull, 1) == ~0ull);
	CHECK(range_alloc(&s, 1, 0x10000) == ~0ull); // aligned, it starts past the end
	range_space empty = {.base = 0x1000};
	CHECK(range_alloc(&empty, 1, 1) == ~0ull);
	range_free(&empty, 0x1000); // nothing is allocated there
}

static void ranges_do_not_overlap(void)
{
	enum { N = 64, UNITS = 1024 };
	range_space s = {.base = 0, .size = UNITS};
	struct { uint64_t at, n; } held[N] = {{0, 0}};
	static unsigned char owner[UNITS];
	srand(1);
	for (int step = 0; step < 20000; step++) {
		int i = rand() % N;
		if (held[i].n) {
			for (uint64_t u = 0; u < held[i].n; u++)
				owner[held[i].at + u] = 0;
			range_free(&s, held[i].at);
			held[i].n = 0;
			continue;
		}
		uint64_t n = 1 + (uint64_t)rand() % 40, align = 1ull << rand() % 5, at = range_alloc(&s, n, align);
		if (at == ~0ull)
			continue;
		held[i].at = at;
		held[i].n = n;
		bool free_before = at % align == 0 && at + n <= UNITS;
		for (uint64_t u = 0; u < n && free_before; u++) {
			free_before = owner[at + u] == 0;
			owner[at + u] = 1;
		}
		CHECK(free_before);
	}
	range_clear(&s);
}

int main(void)
{
	fills_gaps();
	rejects_invalid_sizes();
	ranges_do_not_overlap();
	return failures != 0;
}

// Tests of the stream parser: descriptors, patches, IDs, and damaged streams.
#include "../stream.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

// A block write of descriptor 2 in column 1, its patch, and a wait.
static uint32_t sample[] = {
	0x06040100, 0x00000108, 3, 16 + 48 + 48 + 16,
	OP_BLOCK_WRITE, 0, 1 << 25 | 0x1d040, 48, 1024, 0x1000, 0, 0, 0x80000000, 0x02000000, 0, 0x02000000,
	OP_DDR_PATCH, 48, 0, 0, 0, 0, 1 << 25 | 0x1d044, 0, 3, 0, 0x1000, 0,
	OP_TCT, 16, 0, 0x00010100,
};

static void parses_operations(void)
{
	stream s;
	stream_op op;
	stream_descriptor d;
	stream_patch p;
	CHECK(stream_open(&s, sample, sizeof sample));
	CHECK(stream_next(&s, &op) && op.code == OP_BLOCK_WRITE && stream_is_descriptor(&op, &d) &&
		!stream_is_patch(&op, &p));
	CHECK(d.reg == (1 << 25 | 0x1d040) && d.base == 0x1000 && d.extent == 4096);
	CHECK(stream_next(&s, &op) && stream_is_patch(&op, &p) && !stream_is_descriptor(&op, &d));
	CHECK(p.reg == d.reg + 4 && p.arg == 3 && p.plus == 0x1000);
	CHECK(stream_next(&s, &op) && op.code == OP_TCT);
	CHECK(!stream_next(&s, &op) && !s.fault);
}

// Returns the extent of a descriptor with these words.
static uint64_t extent_of(uint32_t length, uint32_t d0, uint32_t d1, uint32_t d2, uint32_t iteration)
{
	uint32_t w[12] = {OP_BLOCK_WRITE, 0, 0x1d000, 48, length, 0, 0, d0, d1, d2, iteration, 0};
	stream_op op = {OP_BLOCK_WRITE, w, 12};
	stream_descriptor d;
	CHECK(stream_is_descriptor(&op, &d));
	return d.extent;
}

// Size in bits 20 to 29, step minus one below; lengths and steps are in words.
static uint32_t dim(uint32_t size, uint32_t step) { return size << 20 | (step - 1); }

static void computes_extents(void)
{
	CHECK(extent_of(0, 0, 0, 0, 0) == 0);
	CHECK(extent_of(1, 0, 0, 0, 0) == 4);
	CHECK(extent_of(1024, 0, 0, 0, 0) == 4096);
	// 4 rows of 16 words, 100 words apart: the last row ends 3*100 + 16 words in.
	CHECK(extent_of(64, dim(16, 1), dim(0, 100), 0, 0) == 4 * 316);
	CHECK(extent_of(64, dim(16, 1), dim(4, 100), dim(0, 1000), 0) == 4 * 316);
	// Two such blocks, 1000 words apart.
	CHECK(extent_of(128, dim(16, 1), dim(4, 100), dim(0, 1000), 0) == 4 * 1316);
	// The descriptor of mlir-air's vector_reciprocal: 32 blocks of 2 x 512 words, 2048 apart.
	CHECK(extent_of(0x8000, 0x20000000, 0xc02001ff, 0x020007ff, 0) == 4 * (31 * 2048 + 2 * 512));
	// The base advances 3 times by 4096 words.
	CHECK(extent_of(16, 0, 0, 0, 3 << 20 | 4095) == 4 * (16 + 3 * 4096));
}

static void computes_ids(void)
{
	uint32_t copy[sizeof sample / 4];
	uint64_t id = stream_id(sample, sizeof sample);
	CHECK(id != 0);
	for (uint32_t i = 0; i < sizeof sample / 4; i++) {
		memcpy(copy, sample, sizeof sample);
		copy[i] ^= 0x100;
		uint64_t other = stream_id(copy, sizeof copy);
		// Only the descriptor's address and the header's array description are ignored.
		CHECK((other == id) == (i == 1 || i == 4 + 5 || i == 4 + 6));
	}
	memcpy(copy, sample, sizeof sample);
	copy[4 + 6] |= 0xffff;
	CHECK(stream_id(copy, sizeof copy) == id);
	copy[4 + 6] |= 0x10000;
	CHECK(stream_id(copy, sizeof copy) != id);
}

static void survives_damage(void)
{
	for (uint32_t n = 0; n < sizeof sample; n++) {
		void *cut = malloc(n + 1); // exact length, for the address sanitizer
		memcpy(cut, sample, n);
		CHECK(stream_id(cut, n) == 0);
		free(cut);
	}
	uint32_t *copy = malloc(sizeof sample);
	srand(2);
	for (int i = 0; i < 200000; i++) {
		memcpy(copy, sample, sizeof sample);
		for (int k = 0; k < 3; k++)
			copy[(size_t)rand() % (sizeof sample / 4)] = rand() % 2 ? (uint32_t)rand() % 300 : (uint32_t)rand() * 2u;
		stream_id(copy, sizeof sample);
	}
	free(copy);
}

int main(void)
{
	parses_operations();
	computes_extents();
	computes_ids();
	survives_damage();
	return failures != 0;
}

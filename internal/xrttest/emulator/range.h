// A first-fit allocator of address ranges in [base, base+size).
#pragma once
#include <stdint.h>

typedef struct range {
	uint64_t at, size;
	struct range *next; // next higher range
} range;

typedef struct {
	uint64_t base, size; // size may grow
	range *used;
	uint64_t taken; // bytes
} range_space;

// Returns the start of n free bytes, or ~0 if none fit.
uint64_t range_alloc(range_space *s, uint64_t n, uint64_t align);
void range_free(range_space *s, uint64_t at);
void range_clear(range_space *s);

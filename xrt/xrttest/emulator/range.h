// An allocator of address ranges: first fit over [base, base+size).
#pragma once
#include <stdint.h>

typedef struct range {
	uint64_t at, size;
	struct range *next; // the next one upwards
} range;

typedef struct {
	uint64_t base, size; // size may grow
	range *used;
	uint64_t taken; // bytes
} range_space;

// Returns the start of n free bytes, or ~0 when no gap fits.
uint64_t range_take(range_space *s, uint64_t n, uint64_t align);
void range_give(range_space *s, uint64_t at);
void range_clear(range_space *s);

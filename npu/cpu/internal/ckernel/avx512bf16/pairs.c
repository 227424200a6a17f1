//go:build cgo && !windows && amd64

// Products of BF16 pairs with AVX-512 BF16.

#define NPK_HAVE_PAIRS

#include "../csrc/vec_avx512.h"

#include "../csrc/pairs.h"

const npk_kernels npk_avx512bf16_pairs = PAIRS_TABLE;

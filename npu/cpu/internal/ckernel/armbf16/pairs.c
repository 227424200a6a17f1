//go:build cgo && !windows && arm64

// Products of BF16 pairs with bfdot.

#include "../csrc/kernel.h"

#ifdef NPK_WITH_ARMBF16

#define NPK_HAVE_PAIRS

#include "../csrc/vec_generic.h"

#include "../csrc/pairs.h"

const npk_kernels npk_armbf16_pairs = PAIRS_TABLE;

#endif

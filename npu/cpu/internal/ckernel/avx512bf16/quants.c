//go:build cgo && !windows && amd64

// Quantized GEMV as products of BF16 pairs with AVX-512 BF16.

#define NPK_HAVE_PAIRS

#include "../csrc/vec_avx512.h"

#include "../csrc/kernel.h"

#include "../csrc/element.h"

#include "../csrc/grouped.h"

#include "../csrc/quants.h"

const npk_kernels npk_avx512bf16_quants = QUANTS_TABLE;

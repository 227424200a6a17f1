//go:build cgo && !windows && amd64

// Quantized GEMV as sums of integers.

#include "../csrc/vec_avx512.h"

#include "../csrc/kernel.h"

#include "../csrc/element.h"

#include "../csrc/grouped.h"

#include "../csrc/integer.h"

const npk_kernels npk_avx512_integer = INTEGER_TABLE;

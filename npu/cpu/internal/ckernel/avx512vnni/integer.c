//go:build cgo && !windows && amd64

// Quantized GEMV as sums of integers, with AVX-512 VNNI, whose multiply-add of 16-bit integers is
// one instruction.

#define NPK_HAVE_VNNI

#include "../csrc/vec_avx512.h"

#include "../csrc/kernel.h"

#include "../csrc/element.h"

#include "../csrc/grouped.h"

#include "../csrc/integer.h"

const npk_kernels npk_avx512vnni_integer = INTEGER_TABLE;

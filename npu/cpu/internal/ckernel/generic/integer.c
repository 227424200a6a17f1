//go:build cgo && !windows && (amd64 || arm64)

// Quantized GEMV as sums of integers.

// GCC 12's global common subexpression elimination moves loads out of loops that have no registers
// for them, which costs up to 15 %.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-gcse")
#endif

#include "../csrc/vec_generic.h"

#include "../csrc/kernel.h"

#include "../csrc/element.h"

#include "../csrc/grouped.h"

#include "../csrc/integer.h"

const npk_kernels npk_generic_integer = INTEGER_TABLE;

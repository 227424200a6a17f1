//go:build cgo && !windows && arm64

// Kernels for arm64 with BF16.

#include "../csrc/kernel.h"

#ifdef NPK_WITH_ARMBF16

#define NPK_ARM_BF16

#include "../csrc/vec_generic.h"

#include "../csrc/kernels.h"

const npk_kernels npk_armbf16 = BASE_TABLE;

#endif

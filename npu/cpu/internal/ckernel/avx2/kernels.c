//go:build cgo && !windows && amd64

// Kernels with AVX2.

#include "../csrc/vec_avx2.h"

#include "../csrc/kernels.h"

const npk_kernels npk_avx2 = BASE_TABLE;

//go:build cgo && !windows && amd64

// Kernels with AVX-512.

#include "../csrc/vec_avx512.h"

#include "../csrc/kernels.h"

const npk_kernels npk_avx512 = BASE_TABLE;

//go:build cgo && !windows && (amd64 || arm64)

// Kernels with AVX-512. Nothing here may be called before npk_usable says so.

#if defined(__x86_64__)

#include "vec_avx512.h"

#include "kernels.h"

#endif

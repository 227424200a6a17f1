//go:build cgo && !windows && (amd64 || arm64)

// Kernels with AVX2. Nothing here may be called before npk_usable says so.

#if defined(__x86_64__)

#include "vec_avx2.h"

#include "kernels.h"

#endif

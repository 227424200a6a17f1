//go:build cgo && !windows && (amd64 || arm64)

// Kernels for arm64 whose products of BF16 with BF16 use bfdot. Nothing here may be called before npk_usable says so.

#include "kernel.h"

#ifdef NPK_WITH_ARMBF16

#define NPK_HAVE_DP

#include "vec_generic.h"

#include "kernels.h"

#endif

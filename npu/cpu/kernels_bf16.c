//go:build cgo && !windows && (amd64 || arm64)

// Kernels with AVX-512 whose products of BF16 with BF16, and with quants, use vdpbf16ps. Nothing here may be called before npk_usable says so.

#if defined(__x86_64__)

#define NPK_HAVE_DP

#include "vec_avx512.h"

#include "kernels.h"

#include "units.h"

const npk_kernels npk_units = {
    .of = {
        [NPK_GEMV] = {NULL, ISA(gemv_chunks), ISA(gemv_units), ISA(units_bytes)},
    },
};

#endif

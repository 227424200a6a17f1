//go:build cgo && !windows && (amd64 || arm64)

// Kernels for products of few rows with grouped weights, sums of whole numbers, with AVX-512 and VNNI. Nothing here may be called before npk_usable says so.

#if defined(__x86_64__)

#define NPK_HAVE_VNNI

#include "vec_avx512.h"

#include "kernel.h"

#include "element.h"

#include "grouped.h"

#include "bf12.h"

#include "gemv.h"

const npk_kernels npk_vnni = {
    .of = {
        [NPK_GEMV] = {NULL, ISA(gemv_chunks), ISA(gemv), ISA(gemv_scratch)},
    },
};

#endif

// The table of products of BF16 with BF16 by pairs, for CPUs with a dot product of BF16. A pairs.c
// file defines NPK_HAVE_PAIRS and includes a vec_*.h file, then this.

#include "kernel.h"

#include "element.h"

#include "grouped.h"

#include "bf12.h"

#include "gemm.h"

#include "gemv.h"

#include "inplace.h"

#define PAIRS_TABLE                                                                                \
    {                                                                                              \
        .pack_bytes = ISA(pack_bytes),                                                             \
        .peak_flops = PEAK_FLOPS,                                                                  \
        .of = {                                                                                    \
            [NPK_PACK] = {NULL, ISA(pack_chunks), ISA(pack), NULL},                                \
            [NPK_GEMM] = {NULL, ISA(gemm_chunks), ISA(gemm), ISA(gemm_scratch)},                   \
            [NPK_GEMV] = {NULL, ISA(gemv_chunks), ISA(gemv), ISA(gemv_scratch)},                   \
            [NPK_INPLACE] = {NULL, ISA(inplace_chunks), ISA(inplace), ISA(inplace_scratch)},       \
            [NPK_PEAK] = {NULL, ISA(peak_chunks), ISA(peak), ISA(peak_scratch)},                   \
        },                                                                                         \
    }

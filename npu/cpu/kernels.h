// All kernels for one instruction set. A kernels_*.c file chooses the vectors and includes this.

#include "kernel.h"

#include "element.h"

#include "grouped.h"

#include "rows.h"

#include "bf12.h"

#include "gemm.h"

#include "gemv.h"

#include "inplace.h"

#include "attention.h"

const npk_kernels ISA(npk) = {
    .mr = MR,
    .nr = NV * VL,
    .peak_steps = NPK_PEAK_STEPS,
    .of = {
        [NPK_PACK] = {NULL, ISA(pack_chunks), ISA(pack), NULL},
        [NPK_GEMM] = {NULL, ISA(gemm_chunks), ISA(gemm), ISA(gemm_scratch)},
        [NPK_GEMV] = {NULL, ISA(gemv_chunks), ISA(gemv), ISA(gemv_scratch)},
#ifdef NPK_HAVE_DP
        [NPK_INPLACE] = {NULL, ISA(inplace_chunks), ISA(inplace), ISA(inplace_scratch)},
#endif
        [NPK_EMBED] = {NULL, ISA(row_chunks), ISA(embed), NULL},
        [NPK_RMSNORM] = {NULL, ISA(row_chunks), ISA(rmsnorm), NULL},
        [NPK_LAYERNORM] = {NULL, ISA(row_chunks), ISA(layernorm), NULL},
        [NPK_ROPE] = {NULL, ISA(row_chunks), ISA(rope), NULL},
        [NPK_KVWRITE] = {NULL, ISA(kvwrite_chunks), ISA(kvwrite), NULL},
        [NPK_ATTENTION] = {ISA(attention_phases), ISA(attention_chunks), ISA(attention), ISA(attention_scratch)},
        [NPK_SILUMUL] = {NULL, ISA(row_chunks), ISA(silumul), NULL},
        [NPK_GELU] = {NULL, ISA(row_chunks), ISA(gelu), NULL},
        [NPK_ADD] = {NULL, ISA(row_chunks), ISA(add), NULL},
        [NPK_COPY] = {NULL, ISA(copy_chunks), ISA(copy), NULL},
        [NPK_READ] = {NULL, ISA(read_chunks), ISA(read), NULL},
        [NPK_PEAK] = {NULL, ISA(peak_chunks), ISA(peak), ISA(peak_scratch)},
    },
};

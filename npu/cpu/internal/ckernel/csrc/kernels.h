// The base table of an instruction set: all kinds of commands but NPK_INPLACE, and products of any
// types but with weights in groups for few rows. A kernels.c file includes a vec_*.h file, then
// this.

#include "kernel.h"

#include "element.h"

#include "grouped.h"

#include "rows.h"

#include "bf12.h"

#include "gemm.h"

#include "gemv.h"

#include "attention.h"

#define BASE_TABLE                                                                                 \
    {                                                                                              \
        .pack_bytes = ISA(pack_bytes),                                                             \
        .peak_flops = PEAK_FLOPS,                                                                  \
        .of = {                                                                                    \
            [NPK_PACK] = {NULL, ISA(pack_chunks), ISA(pack), NULL},                                \
            [NPK_GEMM] = {NULL, ISA(gemm_chunks), ISA(gemm), ISA(gemm_scratch)},                   \
            [NPK_GEMV] = {NULL, ISA(gemv_chunks), ISA(gemv), ISA(gemv_scratch)},                   \
            [NPK_EMBED] = {NULL, ISA(row_chunks), ISA(embed), NULL},                               \
            [NPK_RMSNORM] = {NULL, ISA(row_chunks), ISA(rmsnorm), NULL},                           \
            [NPK_LAYERNORM] = {NULL, ISA(row_chunks), ISA(layernorm), NULL},                       \
            [NPK_ROPE] = {NULL, ISA(row_chunks), ISA(rope), NULL},                                 \
            [NPK_KVWRITE] = {NULL, ISA(kvwrite_chunks), ISA(kvwrite), NULL},                       \
            [NPK_ATTENTION] = {ISA(attention_phases), ISA(attention_chunks), ISA(attention),       \
                               ISA(attention_scratch)},                                            \
            [NPK_SILUMUL] = {NULL, ISA(row_chunks), ISA(silumul), NULL},                           \
            [NPK_GELU] = {NULL, ISA(row_chunks), ISA(gelu), NULL},                                 \
            [NPK_ADD] = {NULL, ISA(row_chunks), ISA(add), NULL},                                   \
            [NPK_COPY] = {NULL, ISA(copy_chunks), ISA(copy), NULL},                                \
            [NPK_READ] = {NULL, ISA(read_chunks), ISA(read), NULL},                                \
            [NPK_PEAK] = {NULL, ISA(peak_chunks), ISA(peak), ISA(peak_scratch)},                   \
        },                                                                                         \
    }

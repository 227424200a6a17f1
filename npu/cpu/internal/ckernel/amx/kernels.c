//go:build cgo && !windows && amd64

// Products and attention in the matrix unit of CPUs with AMX. Nothing here may be called before
// npk_amx_works has returned true.

#include "../csrc/kernel.h"

#ifdef NPK_WITH_AMX

#define NPK_AMX_TILES

#include "../csrc/vec_avx512.h"

#ifdef NPK_EMULATED_TILES
#include "../csrc/tiles_emulated.h"
#endif

#include "../csrc/element.h"

#include "../csrc/grouped.h"

#include "../csrc/bf12.h"

#include "../csrc/tiles.h"

#include "../csrc/block16.h"

#include "../csrc/tiles_weights.h"

#include "../csrc/tiles_gemm.h"

#include "../csrc/attention.h"

#include "probe.h"

#include <cpuid.h>
#include <pthread.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

const npk_kernels npk_amx = {
    .pack_bytes = ISA(pack_tiles_bytes),
    .peak_flops = (int64_t)2 * ISA(SIDE) * 2 * ISA(SIDE) * ISA(PEAK_STEPS) * NPK_TILE_K * 2,
    .of =
        {
            [NPK_PACK] = {NULL, ISA(pack_tiles_chunks), ISA(pack_tiles), NULL},
            [NPK_GEMV] = {NULL, ISA(gemv_block16_chunks), ISA(gemv_block16),
                          ISA(gemv_block16_scratch)},
            [NPK_GEMM] = {NULL, ISA(gemm_tiles_chunks), ISA(gemm_tiles), ISA(gemm_tiles_scratch)},
            [NPK_ATTENTION] = {ISA(attention_phases), ISA(attention_chunks), ISA(attention),
                               ISA(attention_scratch)},
            [NPK_PEAK] = {NULL, ISA(peak_tiles_chunks), ISA(peak_tiles), ISA(peak_tiles_scratch)},
        },
};

#ifdef NPK_EMULATED_TILES

int npk_amx_works(void) { return 1; }

#else

// Requests the tile state from Linux (arch_prctl, since 5.16), which makes signal frames 8 KB
// larger.
static int permitted(void) {
#ifdef __linux__
    enum { REQUEST = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
#else
    return 0;
#endif
}

// Computes one product whose result is known: every sum is that of 32 products of 1 and 2.
TARGET static int multiplies(void) {
    uint16_t a[ISA(TILE) / 2], b[ISA(TILE) / 2];
    float sums[ISA(SIDE) * ISA(SIDE)] = {0};
    if (!permitted()) return 0;
    for (int i = 0; i < ISA(TILE) / 2; i++) a[i] = 0x3f80, b[i] = 0x4000;
    ISA(tiles_begin)();
    COMPILER_BARRIER();
    _tile_zero(0);
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_stored(0, sums, 64);
    _tile_release();
    for (int i = 0; i < ISA(SIDE) * ISA(SIDE); i++)
        if (sums[i] != 64) return 0;
    return 1;
}

enum { PATIENCE_S = 5 }; // the probe takes microseconds

// Virtual machines may advertise AMX and fault at it, so a child process tries first; permission is
// requested only if it succeeds. The result is kept. If no child can be created, the answer is no,
// and the next call tries again.
int npk_amx_works(void) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static int known, works;
    unsigned a, b, c, d;
    const unsigned bf16 = 1u << 22, tile = 1u << 24;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & bf16) || !(d & tile)) return 0;
    pthread_mutex_lock(&mutex);
    if (!known) {
        int survived = npk_survives(multiplies, PATIENCE_S);
        known = survived >= 0;
        works = survived > 0 && permitted();
    }
    pthread_mutex_unlock(&mutex);
    return works;
}

#endif

#endif

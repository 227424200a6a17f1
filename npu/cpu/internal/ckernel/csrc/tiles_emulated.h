// The matrix unit of AMX in C, for tests of its kernels on machines without one (go test -tags
// emulatedamx). It shows that results are right, and nothing about speed. A tile without a
// configuration, or tiles that do not match in a product, end the program, as an illegal
// instruction would. The instructions are specified in Intel's manual, volume 2, LDTILECFG,
// TILELOADD, TILESTORED and TDPBF16PS.

#ifndef NPK_TILES_EMULATED_H
#define NPK_TILES_EMULATED_H

#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EMULATED_TILES = 8, EMULATED_ROWS = 16, EMULATED_BYTES = 64 };

typedef struct emulated_tile {
    int rows, bytes;
    union {
        float sums[EMULATED_ROWS][EMULATED_BYTES / 4];
        uint32_t pairs[EMULATED_ROWS][EMULATED_BYTES / 4];
        char at[EMULATED_ROWS][EMULATED_BYTES];
    };
} emulated_tile;

static _Thread_local emulated_tile emulated[EMULATED_TILES];

static inline void emulated_expect(int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "emulated AMX: %s\n", what);
    abort();
}

static inline emulated_tile *emulated_at(int i) {
    emulated_expect(i >= 0 && i < EMULATED_TILES && emulated[i].rows > 0,
                    "a tile is used that has no configuration");
    return &emulated[i];
}

static inline void emulated_loadconfig(const void *config) {
    const uint8_t *from = config;
    emulated_expect(from[0] == 1 && from[1] == 0,
                    "the configuration is not of palette 1, from row 0 on");
    for (int i = 2; i < 16; i++)
        emulated_expect(from[i] == 0, "the configuration has something in its reserved bytes");
    memset(emulated, 0, sizeof emulated);
    for (int i = 0; i < EMULATED_TILES; i++) {
        uint16_t bytes;
        memcpy(&bytes, from + 16 + 2 * i, 2);
        emulated[i].rows = from[48 + i];
        emulated[i].bytes = bytes;
        emulated_expect(emulated[i].rows <= EMULATED_ROWS && bytes <= EMULATED_BYTES,
                        "a tile is configured larger than 16 rows of 64 bytes");
        emulated_expect(bytes % 4 == 0 && (bytes > 0) == (emulated[i].rows > 0),
                        "a tile is configured with half a number, or with rows of nothing");
    }
}

static inline void emulated_release(void) { memset(emulated, 0, sizeof emulated); }

static inline void emulated_zero(int i) { memset(emulated_at(i)->at, 0, sizeof emulated[i].at); }

static inline void emulated_load(int i, const char *from, int64_t stride) {
    emulated_tile *t = emulated_at(i);
    emulated_zero(i);
    for (int r = 0; r < t->rows; r++) memcpy(t->at[r], from + r * stride, (size_t)t->bytes);
}

static inline void emulated_store(int i, char *to, int64_t stride) {
    const emulated_tile *t = emulated_at(i);
    for (int r = 0; r < t->rows; r++) memcpy(to + r * stride, t->at[r], (size_t)t->bytes);
}

// sums [rows][columns] += left [rows][pairs] * right [pairs][columns]. The products of first
// numbers and of second numbers of pairs are summed separately. Rounding is to nearest, and
// subnormal inputs and results count as zero. The sanitizers skip this function: it accesses tiles
// alone, which nobody indexes from outside.
__attribute__((target("avx512f"), optimize("O3"), no_sanitize("address", "undefined"))) static void
emulated_dpbf16ps(int sums, int left, int right) {
    emulated_tile *s = emulated_at(sums);
    const emulated_tile *l = emulated_at(left), *r = emulated_at(right);
    const int columns = s->bytes / 4, pairs = l->bytes / 4;
    emulated_expect(sums != left && sums != right && left != right, "a product has one tile twice");
    emulated_expect(l->rows == s->rows && r->bytes == s->bytes && r->rows == pairs,
                    "the shapes of three tiles do not fit");
    const __mmask16 within = (__mmask16)((1u << columns) - 1);
    const __m512i high = _mm512_set1_epi32((int)0xffff0000);
    const unsigned mode = _mm_getcsr();
    _mm_setcsr(0x1f80 | _MM_FLUSH_ZERO_ON | 0x40); // 0x40: subnormal inputs count as zero
    for (int m = 0; m < s->rows; m++) {
        __m512 first = _mm512_setzero_ps(), second = _mm512_setzero_ps();
        for (int k = 0; k < pairs; k++) {
            const __m512i a = _mm512_set1_epi32((int)l->pairs[m][k]),
                          b = _mm512_loadu_si512(r->pairs[k]);
            first = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(a, 16)),
                                    _mm512_castsi512_ps(_mm512_slli_epi32(b, 16)), first);
            second = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(a, high)),
                                     _mm512_castsi512_ps(_mm512_and_si512(b, high)), second);
        }
        const __m512 sum = _mm512_add_ps(_mm512_loadu_ps(s->sums[m]), _mm512_add_ps(first, second));
        _mm512_mask_storeu_ps(s->sums[m], within, sum);
    }
    _mm_setcsr(mode);
}

#undef _tile_loadd
#undef _tile_stream_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbf16ps
#define _tile_loadconfig emulated_loadconfig
#define _tile_release emulated_release
#define _tile_zero emulated_zero
#define _tile_loadd(i, from, stride) emulated_load(i, (const char *)(from), stride)
#define _tile_stream_loadd(i, from, stride) emulated_load(i, (const char *)(from), stride)
#define _tile_stored(i, to, stride) emulated_store(i, (char *)(to), stride)
#define _tile_dpbf16ps emulated_dpbf16ps

#endif

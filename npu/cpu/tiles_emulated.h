// The matrix unit of AMX in C, for tests of its kernels on machines without one (go test -tags emulatedamx): right results are all that it shows, no speed. A tile without a
// configuration, or tiles that do not go together in a product, end the program, as an illegal instruction would. Source of what the instructions do: Intel's manual,
// volume 2, LDTILECFG, TILELOADD, TILESTORED and TDPBF16PS.

#ifndef NPK_TILES_EMULATED_H
#define NPK_TILES_EMULATED_H

#include <math.h>
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
    emulated_expect(i >= 0 && i < EMULATED_TILES && emulated[i].rows > 0, "a tile is used that has no configuration");
    return &emulated[i];
}

static inline void emulated_loadconfig(const void *config) {
    const uint8_t *from = config;
    emulated_expect(from[0] == 1 && from[1] == 0, "the configuration is not of palette 1, from row 0 on");
    for (int i = 2; i < 16; i++) emulated_expect(from[i] == 0, "the configuration has something in its reserved bytes");
    memset(emulated, 0, sizeof emulated);
    for (int i = 0; i < EMULATED_TILES; i++) {
        uint16_t bytes;
        memcpy(&bytes, from + 16 + 2 * i, 2);
        emulated[i].rows = from[48 + i];
        emulated[i].bytes = bytes;
        emulated_expect(emulated[i].rows <= EMULATED_ROWS && bytes <= EMULATED_BYTES, "a tile is configured larger than 16 rows of 64 bytes");
        emulated_expect(bytes % 4 == 0 && (bytes > 0) == (emulated[i].rows > 0), "a tile is configured with half a number, or with rows of nothing");
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

// A float of these bits; subnormal numbers count as zero, as inputs and as results.
static inline float emulated_float(uint32_t bits) {
    float x;
    if ((bits & 0x7f800000) == 0) bits &= 0x80000000;
    memcpy(&x, &bits, 4);
    return x;
}
static inline float emulated_flush(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return emulated_float(bits);
}

// sums [rows][columns] += left [rows][pairs] * right [pairs][columns]. Products of the first numbers of pairs and of the second are summed apart.
static void emulated_dpbf16ps(int sums, int left, int right) {
    emulated_tile *s = emulated_at(sums);
    const emulated_tile *l = emulated_at(left), *r = emulated_at(right);
    const int columns = s->bytes / 4, pairs = l->bytes / 4;
    emulated_expect(sums != left && sums != right && left != right, "a product has one tile twice");
    emulated_expect(l->rows == s->rows && r->bytes == s->bytes && r->rows == pairs, "the shapes of three tiles do not fit");
    for (int m = 0; m < s->rows; m++) {
        float first[EMULATED_BYTES / 4] = {0}, second[EMULATED_BYTES / 4] = {0};
        for (int k = 0; k < pairs; k++) {
            const float a = emulated_float(l->pairs[m][k] << 16), b = emulated_float(l->pairs[m][k] & 0xffff0000);
            for (int n = 0; n < columns; n++) {
                first[n] = emulated_flush(fmaf(a, emulated_float(r->pairs[k][n] << 16), first[n]));
                second[n] = emulated_flush(fmaf(b, emulated_float(r->pairs[k][n] & 0xffff0000), second[n]));
            }
        }
        for (int n = 0; n < columns; n++) s->sums[m][n] = emulated_flush(s->sums[m][n] + emulated_flush(first[n] + second[n]));
    }
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

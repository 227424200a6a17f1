// Products of BF16 activations in the matrix unit (AMX): tiles of 16 rows of 64 bytes. One
// instruction multiplies two of them and adds to a third, sixteen times the arithmetic of FP32
// multiply-adds.
//
//	left   [16][32] BF16    rows in order
//	right  [16][16] pairs   the pairs of one place of 16 columns are adjacent
//	sums   [16][16] FP32
//
// BF16 weights are the left operand and activations the right one, which NPK_PACK transposes once
// for all products that read them. Weights in BF12 and in groups are decoded with 16 rows side by
// side: they are the right operand, and the activations, copied, the left one. A quantized weight
// is the sum of two BF16 terms, the nearest number and the nearest to the remainder, which is off
// by at most 2^-17; for BF16 results the first term suffices.
//
// A row tile is 16 rows of y, a column tile 16 columns of y, which are 16 rows of weights. Every
// sum goes over K in order, in steps of 32, however many rows and columns there are.

enum {
    ISA(SIDE) = NPK_TILE_ROWS,
    ISA(STEP) = NPK_TILE_K,
    ISA(TILE) = 1024,    // bytes
    ISA(FEW_RTILES) = 8, // row tiles up to which a product is memory-bound
};

typedef struct ISA(config) {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} ISA(config);

// Completes stores, and keeps later ones behind. GCC 12 does not know that loading a tile or its
// configuration reads memory.
#define COMPILER_BARRIER() __asm__ volatile("" ::: "memory")

// Configures all tiles at their full size. A thread's tiles are its own, and released after every
// chunk.
INLINE void ISA(tiles_begin)(void) {
    ISA(config) c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.rows[i] = ISA(SIDE);
        c.bytes[i] = 64;
    }
    COMPILER_BARRIER();
    _tile_loadconfig(&c);
}

// Stores even and odd numbers as two BF16 terms each, whose sum is off by at most 2^-17.
INLINE void v_terms(float *upper, float *rest, vf even, vf odd) {
    vf e, o, pair = v_pair(even, odd);
    v_store(upper, pair);
    v_split(pair, &e, &o);
    v_store(rest, v_pair(v_sub(even, e), v_sub(odd, o)));
}

INLINE int64_t ISA(tile_steps)(int64_t k) { return (k + ISA(STEP) - 1) / ISA(STEP); }

// Returns the number of steps in a block of K, except the last: as many as keep a chunk's share of
// the block in L2, or all of them if that saves a short second block.
INLINE int64_t ISA(block_steps)(int64_t steps, int64_t rtiles) {
    const int64_t kb = rtiles <= ISA(FEW_RTILES) ? 64 : 16;
    return steps <= kb + kb / 4 ? steps : kb;
}

// Returns the offset of step s of a row tile of packed activations. Within a block of K all row
// tiles are adjacent, because tiles that are far apart would compete for the same cache sets.
INLINE int64_t ISA(packed_at)(int64_t steps, int64_t rtiles, int64_t rtile, int64_t s) {
    const int64_t kb = ISA(block_steps)(steps, rtiles), before = s / kb * kb,
                  width = npk_min(kb, steps - before);
    return (before * rtiles + rtile * width + s - before) * ISA(TILE);
}

// Copies one left tile, padding missing rows and bytes with zeros.
TARGET static void ISA(copy_tile)(char *dst, const char *src, int64_t stride, int64_t rows,
                                  int64_t bytes) {
    memset(dst, 0, ISA(TILE));
    for (int64_t r = 0; r < npk_min(rows, ISA(SIDE)); r++)
        memcpy(dst + r * 64, src + r * stride, (size_t)npk_min(bytes, 64));
}

// Copies steps of 16 rows to adjacent left tiles.
TARGET static void ISA(copy_rows)(char *dst, const char *src, int64_t stride, int64_t rows,
                                  int64_t steps, int64_t bytes) {
    if (rows < ISA(SIDE) || bytes < steps * 64) {
        for (int64_t s = 0; s < steps; s++)
            ISA(copy_tile)(dst + s * ISA(TILE), src + s * 64, stride, rows, bytes - s * 64);
        return;
    }
    for (int64_t s = 0; s < steps; s++)
        for (int r = 0; r < ISA(SIDE); r++)
            _mm512_storeu_si512(dst + s * ISA(TILE) + r * 64,
                                _mm512_loadu_si512(src + r * stride + s * 64));
}

// Transposes 16 rows to right tiles: in each, pair after pair of all rows.
TARGET static void ISA(transpose_rows)(char *dst, const char *src, int64_t stride, int64_t rows,
                                       int64_t steps, int64_t bytes) {
    for (int64_t s = 0; s < steps; s++, dst += ISA(TILE)) {
        vf r[VL];
        for (int i = 0; i < ISA(SIDE); i++) {
            char tail[64] = {0};
            const char *from = src + i * stride + s * 64;
            if (i < rows && bytes - s * 64 < 64)
                from = memcpy(tail, from, (size_t)(bytes - s * 64));
            r[i] = i < rows ? v_load((const float *)from) : v_zero();
        }
        v_transpose(r);
        for (int i = 0; i < ISA(SIDE); i++) v_store((float *)(dst + i * 64), r[i]);
    }
}

TARGET static int64_t ISA(pack_tiles_bytes)(const npk_cmd *c) {
    return npk_up(c->m, NPK_TILE_ROWS) * npk_up(c->k, NPK_TILE_K) * 2;
}

TARGET static int64_t ISA(pack_tiles_chunks)(const npk_cmd *c, int phase, int threads) {
    (void)phase, (void)threads;
    return (c->m + ISA(SIDE) - 1) / ISA(SIDE);
}

// One chunk is a row tile of activations.
TARGET static void ISA(pack_tiles)(npk_thread *t, const npk_cmd *c, int phase, int64_t chunk) {
    (void)t, (void)phase;
    const int64_t steps = ISA(tile_steps)(c->k), row = chunk * ISA(SIDE),
                  rtiles = (c->m + ISA(SIDE) - 1) / ISA(SIDE), kb = ISA(block_steps)(steps, rtiles);
    for (int64_t from = 0; from < steps; from += kb) {
        const int64_t n = npk_min(kb, steps - from), bytes = (c->k - from * ISA(STEP)) * 2;
        char *dst = (char *)c->y + ISA(packed_at)(steps, rtiles, chunk, from);
        const char *src = (const char *)c->a + row * c->lda * 2 + from * 64;
        if (c->flags & NPK_RIGHT) ISA(transpose_rows)(dst, src, c->lda * 2, c->m - row, n, bytes);
        else ISA(copy_rows)(dst, src, c->lda * 2, c->m - row, n, bytes);
    }
}

// Stores a tile of sums to rows ld apart, or to columns if it is transposed.
INLINE void ISA(store_tile)(float *to, int64_t ld, const char *sums, int transposed) {
    vf r[VL];
    for (int i = 0; i < VL; i++) r[i] = v_load((const float *)(sums + i * 64));
    if (transposed) v_transpose(r);
    for (int i = 0; i < VL; i++) v_store(to + i * ld, r[i]);
}

// Stores a tile of sums to rows row.. and columns column.. of y. If it is transposed, its rows are
// y's columns.
TARGET static void ISA(put_tile)(const npk_cmd *c, const char *sums, int64_t row, int64_t column,
                                 int transposed) {
    vf r[VL];
    for (int i = 0; i < VL; i++) r[i] = v_load((const float *)(sums + i * 64));
    if (transposed) v_transpose(r);
    const int64_t rows = npk_min(VL, c->m - row), columns = npk_min(VL, c->n - column);
    for (int i = 0; i < rows; i++) {
        if (columns == VL) v_put(c->y, c->yt, (row + i) * c->ldy + column, r[i]);
        else v_putn(c->y, c->yt, (row + i) * c->ldy + column, r[i], (int)columns);
    }
}

// Products of BF16 activations in the CPU's matrix unit (AMX): tiles of 16 rows of 64 bytes, of which one instruction multiplies two and adds to a
// third: sixteen times the arithmetic of FP32 multiply-adds.
//
//	left   [16][32] BF16        rows as they lie in memory
//	right  [16][16] pairs       the pairs of one place of sixteen columns side by side
//	sums   [16][16] FP32
//
// Weights in BF16 are the left operand, and activations the right one, which NPK_PACK turns on their side once for all products that want them. Weights in BF12 and in groups come
// out of their words with sixteen rows side by side: they are the right operand, and the activations, copied, the left one. Every value of a quantised weight is the
// sum of two BF16 numbers, the nearest one and the nearest to what that leaves, which is wrong by at most 2^-17 of it; for BF16 results the first alone does.
//
// Every sum goes over K in order, in steps of 32, whatever the numbers of rows and columns are.

enum {
    ISA(SIDE) = NPK_TILE_ROWS,
    ISA(STEP) = NPK_TILE_K,
    ISA(TILE) = 1024, // bytes
    ISA(FEW) = 8,     // sixteens of rows of activations that are few
};

typedef struct ISA(config) {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} ISA(config);

// What has been written is in memory, and what comes next is written later. Compilers need telling: to GCC 12, reading a tile or its configuration touches no memory.
#define COMPILER_BARRIER() __asm__ volatile("" ::: "memory")

// All tiles are as large as they can be. A thread's tiles are its own, and given back after every chunk.
INLINE void ISA(tiles_begin)(void) {
    ISA(config) c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.rows[i] = ISA(SIDE);
        c.bytes[i] = 64;
    }
    COMPILER_BARRIER();
    _tile_loadconfig(&c);
}

// Two pairs of BF16 numbers each that add up to even and odd, but for 2^-17 of them.
INLINE void v_terms(float *upper, float *rest, vf even, vf odd) {
    vf e, o, pair = v_pair(even, odd);
    v_store(upper, pair);
    v_split(pair, &e, &o);
    v_store(rest, v_pair(v_sub(even, e), v_sub(odd, o)));
}

INLINE int64_t ISA(tile_steps)(int64_t k) { return (k + ISA(STEP) - 1) / ISA(STEP); }

// Steps of a block of K, but for the last: as many as let what the rows of a chunk have of a block stay in the second cache, and all where that saves a short second block.
INLINE int64_t ISA(block_steps)(int64_t steps, int64_t blocks) {
    const int64_t kb = blocks <= ISA(FEW) ? 64 : 16;
    return steps <= kb + kb / 4 ? steps : kb;
}

// Where step s of sixteen rows of packed activations lies, of so many sixteens: what all of them have of a block of K lies together, for far
// apart much of it would share cache sets.
INLINE int64_t ISA(packed_at)(int64_t steps, int64_t blocks, int64_t block, int64_t s) {
    const int64_t kb = ISA(block_steps)(steps, blocks), before = s / kb * kb, width = npk_min(kb, steps - before);
    return (before * blocks + block * width + s - before) * ISA(TILE);
}

// One left tile; rows and bytes that are missing are zeros.
TARGET static void ISA(copy_tile)(char *dst, const char *src, int64_t stride, int64_t rows, int64_t bytes) {
    memset(dst, 0, ISA(TILE));
    for (int64_t r = 0; r < npk_min(rows, ISA(SIDE)); r++) memcpy(dst + r * 64, src + r * stride, (size_t)npk_min(bytes, 64));
}

// So many steps of sixteen rows as left tiles, one after the other.
TARGET static void ISA(copy_rows)(char *dst, const char *src, int64_t stride, int64_t rows, int64_t steps, int64_t bytes) {
    if (rows < ISA(SIDE) || bytes < steps * 64) {
        for (int64_t s = 0; s < steps; s++) ISA(copy_tile)(dst + s * ISA(TILE), src + s * 64, stride, rows, bytes - s * 64);
        return;
    }
    for (int64_t s = 0; s < steps; s++)
        for (int r = 0; r < ISA(SIDE); r++) _mm512_storeu_si512(dst + s * ISA(TILE) + r * 64, _mm512_loadu_si512(src + r * stride + s * 64));
}

// Sixteen rows as right tiles: in each, pair after pair of all rows.
TARGET static void ISA(transpose_rows)(char *dst, const char *src, int64_t stride, int64_t rows, int64_t steps, int64_t bytes) {
    for (int64_t s = 0; s < steps; s++, dst += ISA(TILE)) {
        vf r[VL];
        for (int i = 0; i < ISA(SIDE); i++) {
            char tail[64] = {0};
            const char *from = src + i * stride + s * 64;
            if (i < rows && bytes - s * 64 < 64) from = memcpy(tail, from, (size_t)(bytes - s * 64));
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

// One chunk is sixteen rows of activations.
TARGET static void ISA(pack_tiles)(npk_thread *t, const npk_cmd *c, int phase, int64_t chunk) {
    (void)t, (void)phase;
    const int64_t steps = ISA(tile_steps)(c->k), row = chunk * ISA(SIDE), blocks = (c->m + ISA(SIDE) - 1) / ISA(SIDE), kb = ISA(block_steps)(steps, blocks);
    for (int64_t from = 0; from < steps; from += kb) {
        const int64_t n = npk_min(kb, steps - from), bytes = (c->k - from * ISA(STEP)) * 2;
        char *dst = (char *)c->y + ISA(packed_at)(steps, blocks, chunk, from);
        const char *src = (const char *)c->a + row * c->lda * 2 + from * 64;
        if (c->flags & NPK_RIGHT) ISA(transpose_rows)(dst, src, c->lda * 2, c->m - row, n, bytes);
        else ISA(copy_rows)(dst, src, c->lda * 2, c->m - row, n, bytes);
    }
}

// A tile of sums goes to rows ld apart; turned, its rows are their columns.
INLINE void ISA(store_tile)(float *to, int64_t ld, const char *sums, int turned) {
    vf r[VL];
    for (int i = 0; i < VL; i++) r[i] = v_load((const float *)(sums + i * 64));
    if (turned) v_transpose(r);
    for (int i = 0; i < VL; i++) v_store(to + i * ld, r[i]);
}

// A tile of sums goes to rows row.. and columns column.. of y; turned, its rows are y's columns.
TARGET static void ISA(put_tile)(const npk_cmd *c, const char *sums, int64_t row, int64_t column, int turned) {
    vf r[VL];
    for (int i = 0; i < VL; i++) r[i] = v_load((const float *)(sums + i * 64));
    if (turned) v_transpose(r);
    const int64_t rows = npk_min(VL, c->m - row), columns = npk_min(VL, c->n - column);
    for (int i = 0; i < rows; i++) {
        if (columns == VL) v_put(c->y, c->yt, (row + i) * c->ldy + column, r[i]);
        else v_putn(c->y, c->yt, (row + i) * c->ldy + column, r[i], (int)columns);
    }
}

// Products of BF16 activations in the CPU's matrix unit (AMX): tiles of 16 rows of 64 bytes, of which one instruction multiplies two and adds to a
// third. On the Xeon that was measured that is sixteen times the arithmetic of FP32 multiply-adds.
//
//	left   [16][32] BF16        rows as they lie in memory
//	right  [16][16] pairs       the pairs of one place of sixteen columns side by side
//	sums   [16][16] FP32
//
// Weights in BF16 are the left operand, and activations the right one, which NPK_PACK turns on their side once for all products that want them. Weights in groups come out of their words with sixteen rows side by side: they are the right operand, and
// the activations, copied, the left one. Every value of a quantised weight is the sum of two BF16 numbers, the nearest one and the nearest to
// what that leaves, which is wrong by at most 2^-18 of it; for BF16 results the first alone does.
//
// Every sum goes over K in order, in steps of 32, whatever the numbers of rows and columns are. Products of few rows, for which memory is slower than any
// arithmetic, are AVX-512's: by way of tiles a Xeon decoded a quarter slower.

enum {
    ISA(SIDE) = NPK_TILE_ROWS,
    ISA(STEP) = NPK_TILE_K,
    ISA(TILE) = 1024, // bytes
    ISA(KB) = 16,      // steps of a block of K
    ISA(KB_MOST) = 20, // where that saves a second block
};

typedef struct ISA(config) {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} ISA(config);

// What has been written is in memory, and what comes next is written later. Compilers need telling: to GCC 12, reading a tile or its configuration touches no memory.
#define WRITTEN() __asm__ volatile("" ::: "memory")

// All tiles are as large as they can be. A thread's tiles are its own, and given back after every chunk.
INLINE void ISA(tiles_begin)(void) {
    ISA(config) c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.rows[i] = ISA(SIDE);
        c.bytes[i] = 64;
    }
    WRITTEN();
    _tile_loadconfig(&c);
}

// Even and odd numbers as pairs of BF16, rounded to nearest.
INLINE vf v_pair(vf even, vf odd) {
    const __m512i places = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_castsi512_ps(_mm512_permutexvar_epi16(places, (__m512i)_mm512_cvtne2ps_pbh(odd, even)));
}

// Two pairs of BF16 numbers each that add up to even and odd, but for 2^-18 of them.
INLINE void v_cut(float *upper, float *rest, vf even, vf odd) {
    vf e, o, pair = v_pair(even, odd);
    v_store(upper, pair);
    v_split(pair, &e, &o);
    v_store(rest, v_pair(v_sub(even, e), v_sub(odd, o)));
}

INLINE int64_t ISA(tile_steps)(int64_t k) { return (k + ISA(STEP) - 1) / ISA(STEP); }

// Steps of a block of K, but for the last.
INLINE int64_t ISA(block_steps)(int64_t steps) { return steps <= ISA(KB_MOST) ? steps : ISA(KB); }

// Where step s of sixteen rows of packed activations lies, of so many sixteens: what all of them have of a block of K is in one piece, because of what lies far apart
// much would share cache sets.
INLINE int64_t ISA(packed_at)(int64_t steps, int64_t blocks, int64_t block, int64_t s) {
    const int64_t kb = ISA(block_steps)(steps), before = s / kb * kb, width = npk_min(kb, steps - before);
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
    for (int r = 0; r < ISA(SIDE); r++)
        for (int64_t s = 0; s < steps; s++) _mm512_storeu_si512(dst + s * ISA(TILE) + r * 64, _mm512_loadu_si512(src + r * stride + s * 64));
}

// Sixteen rows as right tiles: in each, pair after pair of all rows.
TARGET static void ISA(turn_rows)(char *dst, const char *src, int64_t stride, int64_t rows, int64_t steps, int64_t bytes) {
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

TARGET static int64_t ISA(pack_tiles_chunks)(const npk_cmd *c, int phase, int threads) {
    (void)phase, (void)threads;
    return (c->m + ISA(SIDE) - 1) / ISA(SIDE);
}

// One chunk is sixteen rows of activations.
TARGET static void ISA(pack_tiles)(npk_thread *t, const npk_cmd *c, int phase, int64_t chunk) {
    (void)t, (void)phase;
    const int64_t steps = ISA(tile_steps)(c->k), row = chunk * ISA(SIDE), kb = ISA(block_steps)(steps);
    for (int64_t from = 0; from < steps; from += kb) {
        const int64_t n = npk_min(kb, steps - from), bytes = (c->k - from * ISA(STEP)) * 2;
        char *dst = (char *)c->y + ISA(packed_at)(steps, (c->m + ISA(SIDE) - 1) / ISA(SIDE), chunk, from);
        const char *src = (const char *)c->a + row * c->lda * 2 + from * 64;
        if (c->flags & NPK_PAIRS) ISA(turn_rows)(dst, src, c->lda * 2, c->m - row, n, bytes);
        else ISA(copy_rows)(dst, src, c->lda * 2, c->m - row, n, bytes);
    }
}

// One operand of a product: where its first sixteen and its second begin, and what lies from row to row of a tile and from step to step.
typedef struct ISA(operand) {
    const char *at[2];
    int64_t stride, step;
} ISA(operand);

// How the operands of a product lie: the weights left of the activations; or right of them, as one or two numbers whose tiles follow each other. Weights come
// from the nearest cache and stay there; activations and sums come from the next one, and are loaded as what is not needed again soon.
enum { ISA(WEIGHTS_LEFT), ISA(WEIGHTS_RIGHT), ISA(WEIGHTS_CUT) };

// Up to two by two tiles of sums over a number of steps, in sums[left][right]. The numbers and how are constants wherever this is inlined.
INLINE void ISA(multiply)(const int how, const int nl, const int nr, int64_t steps, ISA(operand) l, ISA(operand) r, char *const sums[2][2], int first) {
    const int limbs = how == ISA(WEIGHTS_CUT) ? 2 : 1;
    WRITTEN();
    if (first) {
        _tile_zero(0);
        if (nr > 1) _tile_zero(1);
        if (nl > 1) _tile_zero(2);
        if (nl > 1 && nr > 1) _tile_zero(3);
    } else {
        _tile_stream_loadd(0, sums[0][0], 64);
        if (nr > 1) _tile_stream_loadd(1, sums[0][1], 64);
        if (nl > 1) _tile_stream_loadd(2, sums[1][0], 64);
        if (nl > 1 && nr > 1) _tile_stream_loadd(3, sums[1][1], 64);
    }
    for (int64_t s = 0; s < steps; s++) {
        if (how == ISA(WEIGHTS_LEFT)) {
            _tile_loadd(4, l.at[0] + s * l.step, l.stride);
            if (nl > 1) _tile_loadd(5, l.at[1] + s * l.step, l.stride);
        } else {
            _tile_stream_loadd(4, l.at[0] + s * l.step, l.stride);
            if (nl > 1) _tile_stream_loadd(5, l.at[1] + s * l.step, l.stride);
        }
#pragma GCC unroll 2
        for (int i = 0; i < limbs; i++) {
            if (how == ISA(WEIGHTS_LEFT)) {
                _tile_stream_loadd(6, r.at[0] + s * r.step, r.stride);
                if (nr > 1) _tile_stream_loadd(7, r.at[1] + s * r.step, r.stride);
            } else {
                _tile_loadd(6, r.at[0] + s * r.step + i * ISA(TILE), r.stride);
                if (nr > 1) _tile_loadd(7, r.at[1] + s * r.step + i * ISA(TILE), r.stride);
            }
            _tile_dpbf16ps(0, 4, 6);
            if (nl > 1) _tile_dpbf16ps(2, 5, 6);
            if (nr > 1) _tile_dpbf16ps(1, 4, 7);
            if (nl > 1 && nr > 1) _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, sums[0][0], 64);
    if (nr > 1) _tile_stored(1, sums[0][1], 64);
    if (nl > 1) _tile_stored(2, sums[1][0], 64);
    if (nl > 1 && nr > 1) _tile_stored(3, sums[1][1], 64);
}

TARGET static void ISA(multiply_any)(int how, int nl, int nr, int64_t steps, ISA(operand) l, ISA(operand) r, char *const sums[2][2], int first) {
    switch (how * 4 + (nl - 1) * 2 + nr - 1) {
#define MULTIPLY(HOW, NL, NR)                                                                                                             \
    case ISA(HOW) * 4 + (NL - 1) * 2 + NR - 1: ISA(multiply)(ISA(HOW), NL, NR, steps, l, r, sums, first); break;
#define EACH_MULTIPLY(HOW) MULTIPLY(HOW, 1, 1) MULTIPLY(HOW, 1, 2) MULTIPLY(HOW, 2, 1) MULTIPLY(HOW, 2, 2)
        EACH_MULTIPLY(WEIGHTS_LEFT)
        EACH_MULTIPLY(WEIGHTS_RIGHT)
        EACH_MULTIPLY(WEIGHTS_CUT)
#undef EACH_MULTIPLY
#undef MULTIPLY
    }
}

// A tile of sums goes to rows row.. and columns column.. of y; turned, its rows are y's columns.
TARGET static void ISA(put_tile)(const npk_cmd *c, const char *sums, int64_t row, int64_t column, int turned) {
    vf r[VL];
    for (int i = 0; i < VL; i++) r[i] = v_load((const float *)(sums + i * 64));
    if (turned) v_transpose(r);
    int64_t rows = npk_min(VL, c->m - row), columns = c->n - column;
    for (int i = 0; i < rows; i++) {
        if (columns >= VL) v_put(c->y, c->yt, (row + i) * c->ldy + column, r[i]);
        else v_putn(c->y, c->yt, (row + i) * c->ldy + column, r[i], (int)columns);
    }
}

enum { ISA(PEAK_STEPS) = 256 };

// Arithmetic alone: two by two tiles again and again, from the nearest cache.
TARGET static int64_t ISA(peak_tiles_chunks)(const npk_cmd *c, int phase, int threads) {
    (void)phase, (void)threads;
    return c->n;
}

TARGET static int64_t ISA(peak_tiles_scratch)(const npk_cmd *c) {
    (void)c;
    return 8 * (int64_t)ISA(TILE);
}

TARGET static void ISA(peak_tiles)(npk_thread *t, const npk_cmd *c, int phase, int64_t chunk) {
    (void)phase, (void)chunk;
    char *a = t->scratch, *b = a + 2 * ISA(TILE), *y = b + 2 * ISA(TILE);
    if (t->prepared != c) memset(a, 0, (size_t)ISA(peak_tiles_scratch)(c));
    t->prepared = c;
    char *const sums[2][2] = {{y, y + ISA(TILE)}, {y + 2 * ISA(TILE), y + 3 * ISA(TILE)}};
    const ISA(operand) l = {{a, a + ISA(TILE)}, 64, 0}, r = {{b, b + ISA(TILE)}, 64, 0}; // the same tiles in every step
    ISA(tiles_begin)();
    ISA(multiply)(ISA(WEIGHTS_LEFT), 2, 2, ISA(PEAK_STEPS), l, r, sums, 1);
    _tile_release();
}

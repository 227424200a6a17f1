// Products of BF16 activations in the CPU's matrix unit (AMX): tiles of 16 rows of 64 bytes, of which one instruction multiplies two and adds to a
// third. On a Sapphire Rapids Xeon that is sixteen times the arithmetic of FP32 multiply-adds.
//
//	left   [16][32] BF16        rows as they lie in memory
//	right  [16][16] pairs       the pairs of one place of sixteen columns side by side
//	sums   [16][16] FP32
//
// Weights in BF16 are the left operand, straight from where they lie or copied row by row, and activations the right one, which NPK_PACK turns on their side
// once for all products that want them. Weights in groups come out of their words with sixteen rows side by side: they are the right operand, and
// the activations, copied, the left one. Every value of a quantised weight is the sum of two BF16 numbers, the nearest one and the nearest to
// what that leaves, which is wrong by at most 2^-18 of it; for BF16 results the first alone does.
//
// Every sum goes over K in order, in steps of 32, whatever the numbers of rows and columns are.

enum {
    ISA(SIDE) = NPK_TILE_ROWS,
    ISA(STEP) = NPK_TILE_K,
    ISA(TILE) = 1024,      // bytes
    ISA(KB) = 16,          // steps of a block of K: two strips of BF16 weights stay in the nearest cache
    ISA(STRIPS) = 8,       // sixteens of columns in a chunk at most
    ISA(BLOCKS) = 32,      // sixteens of rows in a chunk at most
    ISA(DIRECT_ROWS) = 64, // most rows for which weights are not copied
};

typedef struct ISA(config) {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} ISA(config);

// What has been written is in memory, and what comes next is written later. Compilers need telling: to GCC 12, reading a tile or its configuration touches no memory.
#define WRITTEN() __asm__ volatile("" ::: "memory")

// Tiles 0 to 3 are sums, 4 and 5 left, 6 and 7 right, of so many columns. A thread's tiles are its own, and given back after every chunk.
INLINE void ISA(tiles_begin)(int columns) {
    ISA(config) c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.rows[i] = ISA(SIDE);
        c.bytes[i] = (uint16_t)(i == 4 || i == 5 ? 64 : 4 * columns);
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

// One left tile; rows and bytes that are missing are zeros.
TARGET static void ISA(copy_tile)(char *dst, const char *src, int64_t stride, int64_t rows, int64_t bytes) {
    memset(dst, 0, ISA(TILE));
    for (int64_t r = 0; r < npk_min(rows, ISA(SIDE)); r++) memcpy(dst + r * 64, src + r * stride, (size_t)npk_min(bytes, 64));
}

// So many steps of sixteen rows as left tiles, one after the other. Meanwhile memory is asked for the same of the rows that lie so far ahead, if any.
TARGET static void ISA(copy_rows)(char *dst, const char *src, int64_t stride, int64_t rows, int64_t steps, int64_t bytes, int64_t ahead) {
    if (rows < ISA(SIDE) || bytes < steps * 64) {
        for (int64_t s = 0; s < steps; s++) ISA(copy_tile)(dst + s * ISA(TILE), src + s * 64, stride, rows, bytes - s * 64);
        return;
    }
    for (int r = 0; r < ISA(SIDE); r++)
        for (int64_t s = 0; s < steps; s++) {
            if (ahead) __builtin_prefetch(src + (r + ahead) * stride + s * 64, 0, 2);
            _mm512_storeu_si512(dst + s * ISA(TILE) + r * 64, _mm512_loadu_si512(src + r * stride + s * 64));
        }
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
    int64_t steps = ISA(tile_steps)(c->k), row = chunk * ISA(SIDE);
    char *dst = (char *)c->y + chunk * steps * ISA(TILE);
    const char *src = (const char *)c->a + row * c->lda * 2;
    if (c->flags & NPK_PAIRS) ISA(turn_rows)(dst, src, c->lda * 2, c->m - row, steps, c->k * 2);
    else ISA(copy_rows)(dst, src, c->lda * 2, c->m - row, steps, c->k * 2, 0);
}

// Steps from.. of a group of quantised weights as right tiles, of one or two numbers each.
INLINE void ISA(right_of)(const int type, const int limbs, char *dst, const npk_cmd *c, int64_t group, int64_t from, int64_t steps) {
    const ISA(form) f = ISA(form_of)(type);
    const char *g = (const char *)c->b + group * ISA(group_bytes)(f, c->k), *unit = g + ISA(scale_bytes)(f, c->k) + from * f.words * 64;
    const vf bias = v_set1((float)f.bias);
    for (int64_t s = from; s < from + steps; s++, unit += f.words * 64, dst += limbs * ISA(TILE)) {
        vf scale[2], minimum[2];
        for (int h = 0; h < 2; h++) {
            ISA(factors)(f, g, 2 * s + h, 0, &scale[h], &minimum[h]);
            minimum[h] = v_sub(minimum[h], v_mul(scale[h], bias));
        }
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) {
            vf x[4];
            ISA(four)(f, unit, 0, j, scale[j / 4], minimum[j / 4], x);
#pragma GCC unroll 2
            for (int i = 0; i < 2; i++) { // a pair
                char *to = dst + (2 * j + i) * 64;
                if (limbs == 1) v_store((float *)to, v_pair(x[2 * i], x[2 * i + 1]));
                else v_cut((float *)to, (float *)(to + ISA(TILE)), x[2 * i], x[2 * i + 1]);
            }
        }
    }
}

TARGET static void ISA(right_tiles)(char *dst, const npk_cmd *c, int64_t group, int64_t from, int64_t steps, int limbs) {
    switch (c->bt) {
#define RIGHT(type)                                                                                                                       \
    case type:                                                                                                                            \
        if (limbs == 1) ISA(right_of)(type, 1, dst, c, group, from, steps);                                                                \
        else ISA(right_of)(type, 2, dst, c, group, from, steps);                                                                           \
        break;
        EACH_GROUPED(RIGHT)
#undef RIGHT
    }
}

// One operand of a product: where its first sixteen and its second begin, and what lies from row to row of a tile and from step to step.
typedef struct ISA(operand) {
    const char *at[2];
    int64_t stride, step;
} ISA(operand);

// Up to two by two tiles of sums over a number of steps, in sums[left][right]. Limbs is how many numbers a right value is the sum of; their tiles follow
// each other. The numbers are constants wherever this is inlined.
INLINE void ISA(multiply)(const int nl, const int nr, const int limbs, int64_t steps, ISA(operand) l, ISA(operand) r, char *const sums[2][2], int first) {
    WRITTEN();
    if (first) {
        _tile_zero(0);
        if (nr > 1) _tile_zero(1);
        if (nl > 1) _tile_zero(2);
        if (nl > 1 && nr > 1) _tile_zero(3);
    } else {
        _tile_loadd(0, sums[0][0], 64);
        if (nr > 1) _tile_loadd(1, sums[0][1], 64);
        if (nl > 1) _tile_loadd(2, sums[1][0], 64);
        if (nl > 1 && nr > 1) _tile_loadd(3, sums[1][1], 64);
    }
    for (int64_t s = 0; s < steps; s++) {
        _tile_loadd(4, l.at[0] + s * l.step, l.stride);
        if (nl > 1) _tile_loadd(5, l.at[1] + s * l.step, l.stride);
#pragma GCC unroll 2
        for (int i = 0; i < limbs; i++) {
            _tile_loadd(6, r.at[0] + s * r.step + i * ISA(TILE), r.stride);
            if (nr > 1) _tile_loadd(7, r.at[1] + s * r.step + i * ISA(TILE), r.stride);
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

TARGET static void ISA(multiply_any)(int nl, int nr, int limbs, int64_t steps, ISA(operand) l, ISA(operand) r, char *const sums[2][2], int first) {
    switch (limbs * 4 + (nl - 1) * 2 + nr - 1) {
    case 4: ISA(multiply)(1, 1, 1, steps, l, r, sums, first); break;
    case 5: ISA(multiply)(1, 2, 1, steps, l, r, sums, first); break;
    case 6: ISA(multiply)(2, 1, 1, steps, l, r, sums, first); break;
    case 7: ISA(multiply)(2, 2, 1, steps, l, r, sums, first); break;
    case 8: ISA(multiply)(1, 1, 2, steps, l, r, sums, first); break;
    case 9: ISA(multiply)(1, 2, 2, steps, l, r, sums, first); break;
    case 10: ISA(multiply)(2, 1, 2, steps, l, r, sums, first); break;
    default: ISA(multiply)(2, 2, 2, steps, l, r, sums, first);
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

// Columns in sixteens per chunk, and rows in sixteens.
typedef struct ISA(cut) { int64_t strips, groups, blocks, parts; } ISA(cut);

INLINE ISA(cut) ISA(cut_of)(const npk_cmd *c, int threads) {
    int64_t strips = (c->n + ISA(SIDE) - 1) / ISA(SIDE), blocks = (c->m + ISA(SIDE) - 1) / ISA(SIDE), want = 6 * threads;
    ISA(cut) p = {ISA(STRIPS), 0, ISA(BLOCKS), (blocks + ISA(BLOCKS) - 1) / ISA(BLOCKS)};
    if (threads == 1) want = 1;
    while (p.strips > 2 && (strips + p.strips - 1) / p.strips * p.parts < want) p.strips /= 2;
    p.groups = (strips + p.strips - 1) / p.strips;
    // Few columns: cut rows too, at the price of preparing the weights again for each cut.
    while (p.groups * p.parts < want && blocks / (p.parts + 1) >= 8) p.parts++;
    p.blocks = npk_up((blocks + p.parts - 1) / p.parts, 2);
    p.parts = (blocks + p.blocks - 1) / p.blocks;
    return p;
}

TARGET static int64_t ISA(gemm_tiles_chunks)(const npk_cmd *c, int phase, int threads) {
    (void)phase;
    ISA(cut) p = ISA(cut_of)(c, threads);
    return p.groups * p.parts;
}

TARGET static int64_t ISA(gemm_tiles_scratch)(const npk_cmd *c) {
    (void)c;
    return (2 * 2 * ISA(KB) + ISA(STRIPS) * ISA(BLOCKS)) * (int64_t)ISA(TILE);
}

INLINE int ISA(tile_limbs)(const npk_cmd *c) { return c->bt >= NPK_Q8_0 && c->yt != NPK_BF16 ? 2 : 1; }

TARGET static void ISA(gemm_tiles)(npk_thread *t, const npk_cmd *c, int phase, int64_t chunk) {
    (void)phase;
    const ISA(cut) p = ISA(cut_of)(c, t->threads);
    const int64_t steps = ISA(tile_steps)(c->k), strips = (c->n + ISA(SIDE) - 1) / ISA(SIDE), blocks = (c->m + ISA(SIDE) - 1) / ISA(SIDE);
    const int64_t strip0 = chunk / p.parts * p.strips, nstrips = npk_min(p.strips, strips - strip0);
    const int64_t block0 = chunk % p.parts * p.blocks, nblocks = npk_min(p.blocks, blocks - block0);
    const int grouped = c->bt >= NPK_Q8_0, limbs = ISA(tile_limbs)(c);
    const int direct = !grouped && nblocks * ISA(SIDE) <= ISA(DIRECT_ROWS) && c->k % ISA(STEP) == 0;
    char *weights = t->scratch, *sums = weights + 2 * 2 * ISA(KB) * (int64_t)ISA(TILE);
    t->prepared = NULL;
    ISA(tiles_begin)(ISA(SIDE));
    for (int64_t from = 0; from < steps; from += ISA(KB)) {
        const int64_t n = npk_min(ISA(KB), steps - from);
        const int first = from == 0;
        for (int64_t s = 0; s < nstrips; s += 2) {
            const int pair = (int)npk_min(2, nstrips - s);
            ISA(operand) w = {{weights, weights + limbs * n * ISA(TILE)}, 64, limbs * ISA(TILE)};
            const int straight = direct && c->n - (strip0 + s) * ISA(SIDE) >= pair * ISA(SIDE);
            if (npk_cancelled(t)) break;
            for (int i = 0; i < pair; i++) {
                const int64_t column = (strip0 + s + i) * ISA(SIDE);
                const char *row = (const char *)c->b + (column * c->ldb + from * ISA(STEP)) * 2;
                if (grouped) ISA(right_tiles)((char *)w.at[i], c, strip0 + s + i, from, n, limbs);
                else if (straight) w.at[i] = row, w.stride = c->ldb * 2, w.step = 64;
                else ISA(copy_rows)((char *)w.at[i], row, c->ldb * 2, c->n - column, n, (c->k - from * ISA(STEP)) * 2, s + 2 < nstrips ? 2 * ISA(SIDE) : 0);
            }
            for (int64_t b = 0; b < nblocks; b += 2) {
                const int two = (int)npk_min(2, nblocks - b);
                const char *a = (const char *)c->a + ((block0 + b) * steps + from) * ISA(TILE);
                const ISA(operand) x = {{a, a + steps * ISA(TILE)}, 64, ISA(TILE)};
                char *at[2][2];
                for (int i = 0; i < 2; i++) // of the weights, and of the activations
                    for (int j = 0; j < 2; j++) {
                        char *sum = sums + ((s + i) * ISA(BLOCKS) + b + j) * ISA(TILE);
                        if (grouped) at[j][i] = sum;
                        else at[i][j] = sum;
                    }
                if (grouped) ISA(multiply_any)(two, pair, limbs, n, x, w, at, first);
                else ISA(multiply_any)(pair, two, 1, n, w, x, at, first);
            }
        }
    }
    _tile_release();
    if (npk_cancelled(t)) return; // there may be sums that were never made
    // Sixteen rows of y after the other, all that the chunk has of them: rows may lie so far apart that they share cache sets.
    for (int64_t b = 0; b < nblocks; b++)
        for (int64_t s = 0; s < nstrips; s++) ISA(put_tile)(c, sums + (s * ISA(BLOCKS) + b) * ISA(TILE), (block0 + b) * ISA(SIDE), (strip0 + s) * ISA(SIDE), !grouped);
}

// Products of few rows: decoding. The left operand is the weights where they lie, which are read once; the right one has as many columns as there are rows.
//
// Memory serves sixteen rows at a time, 64 bytes of each, at 86 to 94 % of what it gives one stream; the kernels of gemv.h, which read four rows, get a few percent more. Both
// ways to have that here, asking for the next strip ahead of time and copying it while this one is multiplied, were slower by 7 to 40 %.

TARGET static int64_t ISA(gemv_tiles_scratch)(const npk_cmd *c) { return ISA(tile_steps)(c->k) * ISA(SIDE) * 4 * c->m; }

INLINE int64_t ISA(gemv_tiles_step)(const npk_cmd *c, int threads) {
    int64_t rows = npk_max(1, (1 << 20) / (c->k * 2));
    return npk_up(npk_min(rows, npk_max(1, c->n / (8 * threads))), 2 * ISA(SIDE));
}

TARGET static int64_t ISA(gemv_tiles_chunks)(const npk_cmd *c, int phase, int threads) {
    (void)phase;
    int64_t step = ISA(gemv_tiles_step)(c, threads);
    return (c->n + step - 1) / step;
}

// Every thread turns the activations into its own scratch: pair after pair of all rows.
TARGET static void ISA(gemv_tiles_prepare)(npk_thread *t, const npk_cmd *c) {
    const npk_cmd *p = t->prepared;
    if (p == c || (p && p->kind == NPK_GEMV && p->flags == c->flags && p->a == c->a && p->m == c->m && p->k == c->k && p->lda == c->lda)) return;
    const int64_t pairs = ISA(tile_steps)(c->k) * ISA(SIDE);
    uint32_t *x = (uint32_t *)t->scratch;
    for (int64_t m = 0; m < c->m; m++) {
        const uint16_t *a = (const uint16_t *)c->a + m * c->lda;
        for (int64_t i = 0; i < c->k / 2; i++) memcpy(x + i * c->m + m, a + 2 * i, 4);
        for (int64_t i = c->k / 2; i < pairs; i++) x[i * c->m + m] = 2 * i < c->k ? a[2 * i] : 0;
    }
    t->prepared = c;
}

// Sixteen or thirty-two rows of weights.
INLINE void ISA(few_rows)(const int strips, const npk_cmd *c, const char *x, int64_t row) {
    const int64_t stride = c->ldb * 2, steps = ISA(tile_steps)(c->k), full = c->n - row >= strips * ISA(SIDE) ? c->k / ISA(STEP) : 0;
    const char *w = (const char *)c->b + row * stride;
    _tile_zero(0);
    if (strips > 1) _tile_zero(1);
    for (int64_t s = 0; s < full; s++, w += 64, x += ISA(SIDE) * 4 * c->m) {
        _tile_loadd(6, x, 4 * c->m);
        _tile_loadd(4, w, stride);
        _tile_dpbf16ps(0, 4, 6);
        if (strips > 1) {
            _tile_loadd(5, w + ISA(SIDE) * stride, stride);
            _tile_dpbf16ps(1, 5, 6);
        }
    }
    for (int64_t s = full; s < steps; s++, w += 64, x += ISA(SIDE) * 4 * c->m) {
        char tail[ISA(TILE)];
        _tile_loadd(6, x, 4 * c->m);
        ISA(copy_tile)(tail, w, stride, c->n - row, (c->k - s * ISA(STEP)) * 2);
        WRITTEN();
        _tile_loadd(4, tail, 64);
        _tile_dpbf16ps(0, 4, 6);
        WRITTEN();
        if (strips > 1) {
            ISA(copy_tile)(tail, w + ISA(SIDE) * stride, stride, c->n - row - ISA(SIDE), (c->k - s * ISA(STEP)) * 2);
            WRITTEN();
            _tile_loadd(5, tail, 64);
            _tile_dpbf16ps(1, 5, 6);
            WRITTEN();
        }
    }
    char sums[2][ISA(TILE)];
    const int64_t gap = c->m == 1 ? 4 : 64; // one column: its sums side by side
    if (c->m > 1) memset(sums, 0, sizeof sums);
    _tile_stored(0, sums[0], gap);
    if (strips > 1) _tile_stored(1, sums[1], gap);
    for (int i = 0; i < strips; i++) {
        const int64_t column = row + i * ISA(SIDE), left = c->n - column;
        if (c->m > 1) ISA(put_tile)(c, sums[i], 0, column, 1);
        else if (left >= VL) v_put(c->y, c->yt, column, v_load((const float *)sums[i]));
        else v_putn(c->y, c->yt, column, v_load((const float *)sums[i]), (int)left);
    }
}

TARGET static void ISA(gemv_tiles)(npk_thread *t, const npk_cmd *c, int phase, int64_t chunk) {
    (void)phase;
    const int64_t step = ISA(gemv_tiles_step)(c, t->threads), end = npk_min(c->n, (chunk + 1) * step);
    ISA(gemv_tiles_prepare)(t, c);
    ISA(tiles_begin)((int)c->m);
    for (int64_t row = chunk * step; row < end; row += 2 * ISA(SIDE)) {
        if (end - row > ISA(SIDE)) ISA(few_rows)(2, c, t->scratch, row);
        else ISA(few_rows)(1, c, t->scratch, row);
    }
    _tile_release();
}

// Arithmetic alone: two by two tiles again and again, from the nearest cache.
TARGET static int64_t ISA(peak_tiles_chunks)(const npk_cmd *c, int phase, int threads) {
    (void)phase, (void)threads;
    return c->n;
}

enum { ISA(PEAK_STEPS) = 2 * NPK_PEAK_STEPS / ISA(STEP) };

TARGET static int64_t ISA(peak_tiles_scratch)(const npk_cmd *c) {
    (void)c;
    return (4 * ISA(PEAK_STEPS) + 4) * (int64_t)ISA(TILE);
}

TARGET static void ISA(peak_tiles)(npk_thread *t, const npk_cmd *c, int phase, int64_t chunk) {
    (void)phase, (void)chunk;
    char *a = t->scratch, *b = a + 2 * ISA(PEAK_STEPS) * ISA(TILE), *y = b + 2 * ISA(PEAK_STEPS) * ISA(TILE);
    if (t->prepared != c) memset(a, 0, (size_t)ISA(peak_tiles_scratch)(c));
    t->prepared = c;
    char *const sums[2][2] = {{y, y + ISA(TILE)}, {y + 2 * ISA(TILE), y + 3 * ISA(TILE)}};
    const ISA(operand) l = {{a, a + ISA(PEAK_STEPS) * ISA(TILE)}, 64, ISA(TILE)}, r = {{b, b + ISA(PEAK_STEPS) * ISA(TILE)}, 64, ISA(TILE)};
    ISA(tiles_begin)(ISA(SIDE));
    ISA(multiply)(2, 2, 1, ISA(PEAK_STEPS), l, r, sums, 1);
    _tile_release();
}

// GEMV: products of few rows, as in decoding. It is memory-bound: weights are read once, from where
// they are.
//
// Two adjacent bfloat16 are one 32-bit lane: a shift yields the even one as a float and a mask the
// odd one, which is cheaper than widening. So the even and the odd activations of every 2*VL are
// kept apart, and the weights need no shuffle. Every row is summed in the same order, however many
// rows there are.

enum {
    ISA(FLOATS), // FP32 weights, activations in order
    ISA(HALFS),  // FP16 weights, activations in order
    ISA(SPLIT),  // BF16 weights, activations split into even and odd
    ISA(PAIRS)   // BF16 weights and activations, multiplied as pairs
};

INLINE int ISA(gemv_mode)(const npk_cmd *c) {
    return c->bt == NPK_F32 ? ISA(FLOATS) : c->bt == NPK_F16 ? ISA(HALFS) : ISA(SPLIT);
}

// Rows of activations are multiplied one, two, four or eight at a time, eight only if there are
// registers for their sums. The last ones are padded with zeros; a second pass over a block of
// weights finds it in a cache.
enum { ISA(MOST) = VREGS == 32 ? 8 : 4 };
INLINE int64_t ISA(gemv_rows)(int64_t m) { return m <= 2 ? m : m <= 4 ? 4 : npk_up(m, ISA(MOST)); }

// Floats from row to row of the prepared activations. It is no multiple of a large power of two, so
// that rows do not share cache sets.
INLINE int64_t ISA(gemv_ld)(const npk_cmd *c) { return npk_up(c->k, 2 * VL) + 2 * VL; }

// Elements from row to row of a 4-row block that is expanded to BF16, for the same reason.
INLINE int64_t ISA(block4_ld)(const npk_cmd *c) {
    return c->k % 2048 == 2016 ? c->k + 64 : c->k + 32;
}

TARGET static int64_t ISA(gemv_scratch)(const npk_cmd *c) {
    const int64_t expanded = c->bt == NPK_BF12X4 ? NPK_BLOCK4_ROWS * ISA(block4_ld)(c) * 2 : 0;
    return ISA(gemv_rows)(c->m) * ISA(gemv_ld)(c) * 4 + expanded;
}

// Converts the activations to the thread's own scratch, unless it has them from an earlier command.
// Every thread does so: that is cheaper than waiting for another one. Mode is a constant wherever
// this is inlined.
INLINE void ISA(gemv_prepare)(npk_thread *t, const npk_cmd *c, int mode) {
    const npk_cmd *p = t->prepared;
    if (p == c || (p && p->kind == NPK_GEMV && p->table == c->table && p->a == c->a &&
                   p->at == c->at && p->m == c->m && p->k == c->k && p->lda == c->lda &&
                   (mode == ISA(PAIRS) || ISA(gemv_mode)(p) == mode)))
        return;
    int64_t ld = ISA(gemv_ld)(c);
    float *x = (float *)t->scratch;
    for (int64_t m = 0; m < ISA(gemv_rows)(c->m); m++, x += ld) {
        if (m >= c->m) {
            memset(x, 0, (size_t)ld * 4);
            continue;
        }
        int64_t from = m * c->lda;
        if (mode == ISA(PAIRS)) {
            memcpy(x, (const uint16_t *)c->a + from, (size_t)c->k * 2);
            memset((char *)x + c->k * 2, 0, (size_t)(ld - c->k) * 2);
            continue;
        }
        if (mode == ISA(SPLIT) && c->at == NPK_BF16) {
            for (int64_t i = 0; i < c->k; i += 2 * VL) {
                uint16_t pairs[2 * VL] = {0};
                int64_t n = npk_min(2 * VL, c->k - i);
                memcpy(pairs, (const uint16_t *)c->a + from + i, (size_t)n * 2);
                vf even, odd;
                v_pairs(pairs, &even, &odd);
                v_store(x + i, even);
                v_store(x + i + VL, odd);
            }
            continue;
        }
        memset(x + ld - 4 * VL, 0, 4 * VL * 4);
        if (mode == ISA(SPLIT)) {
            const float *a = (const float *)c->a + from;
            for (int64_t i = 0; i < c->k; i++) {
                const int64_t pair = i % (2 * VL);
                x[i - pair + pair % 2 * VL + pair / 2] = a[i];
            }
            continue;
        }
        ROW(c->k, { PUT(x, NPK_F32, 0, GET(c->a, c->at, from)); });
    }
    t->prepared = c;
}

// Loads 2*VL weights as two vectors.
INLINE void ISA(gemv_weights)(const void *w, const int mode, vf *w0, vf *w1) {
    switch (mode) {
    case ISA(FLOATS):
        *w0 = v_load(w);
        *w1 = v_load((const float *)w + VL);
        break;
    case ISA(HALFS):
        *w0 = v_f16(w);
        *w1 = v_f16((const uint16_t *)w + VL);
        break;
    case ISA(SPLIT): v_pairs(w, w0, w1); break;
    default: *w0 = v_load(w); *w1 = v_zero();
    }
}

INLINE vf ISA(gemv_step)(vf acc, const float *x, vf w0, vf w1, const int mode) {
#ifdef NPK_HAVE_PAIRS
    if (mode == ISA(PAIRS)) return v_dp(acc, v_load(x), w0);
#endif
    (void)mode;
    return v_fma(v_load(x + VL), w1, v_fma(v_load(x), w0, acc));
}

// Prefetch distance in bytes for weights that a thread reads from front to back. Most CPUs do not
// read far enough ahead by themselves. One that does is held up by requests that go further, as
// long as the loop is short and its activations leave room in the L1 cache.
INLINE int64_t ISA(reach)(const npk_thread *t, const npk_cmd *c, const int mode) {
    const int64_t fits = c->m == 1 ? 8192 : c->m == 2 ? 2048 : 0;
    return t->machine->reads_ahead && mode == ISA(PAIRS) && c->k <= fits ? 768 : 8192;
}

// R rows of weights times M rows of activations from row m0 on. R, M, mode, and near, whether to
// prefetch into L1 rather than L2, are constants wherever this is inlined. The arrays have constant
// sizes, and loops over them are unrolled, because GCC keeps only such arrays in registers.
INLINE void ISA(gemv_tile)(const int R, const int M, const int mode, const int near,
                           const npk_cmd *c, const float *x, int64_t row, int64_t m0,
                           int64_t reach) {
    const int64_t ld = ISA(gemv_ld)(c), size = mode == ISA(FLOATS) ? 4 : 2, k = c->k;
    const int64_t stride = c->ldb * size;
    const char *w = (const char *)c->b + row * stride;
    // Prefetch the next rows if rows are short, and further on in these otherwise. Each pass over
    // the weights prefetches its share, so that memory is busy in all of them. A single row is a
    // stream that continues in the next rows.
    const int64_t far = R == 1 ? reach : stride <= 4096 ? R * stride : 2048;
    const int64_t passes = (c->m + M - 1) / M;
    int64_t ahead[4];
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) ahead[r] = r % passes == m0 / M ? far : 0;
    vf acc[8][4];
#pragma GCC unroll 8
    for (int m = 0; m < M; m++)
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) acc[m][r] = v_zero();
    x += m0 * ld;
    int64_t i = 0;
    for (; i + 2 * VL <= k; i += 2 * VL) {
        const float *at = x + (mode == ISA(PAIRS) ? i / 2 : i);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            const char *from = w + r * stride + i * size;
            vf w0, w1;
            if (near) __builtin_prefetch(from + ahead[r]);
            else __builtin_prefetch(from + ahead[r], 0, 2);
            ISA(gemv_weights)(from, mode, &w0, &w1);
#pragma GCC unroll 8
            for (int m = 0; m < M; m++)
                acc[m][r] = ISA(gemv_step)(acc[m][r], at + m * ld, w0, w1, mode);
        }
    }
    if (i < k)
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            char tail[2 * VL * 4] = {0};
            vf w0, w1;
            memcpy(tail, w + r * stride + i * size, (size_t)((k - i) * size));
            ISA(gemv_weights)(tail, mode, &w0, &w1);
            const float *at = x + (mode == ISA(PAIRS) ? i / 2 : i);
#pragma GCC unroll 8
            for (int m = 0; m < M; m++)
                acc[m][r] = ISA(gemv_step)(acc[m][r], at + m * ld, w0, w1, mode);
        }
    float sums[8][VL];
#pragma GCC unroll 8
    for (int m = 0; m < M; m++) v_store(sums[m], v_sums(acc[m], R));
    ISA(put_few)(c, m0, npk_min(M, c->m - m0), row, R, sums[0], VL);
}

// Rows of weights at a time: as many as leave registers for the sums. It is one row where memory is
// best read as one stream and the activations fill at most half of the L1 cache, because every row
// reads all of them. Prefetches for another stream go to L2.
#define GEMV_R(M) ((M) == 8 ? 3 : VREGS == 32 || (M) == 1 ? 4 : 2)

#define GEMV_ROWS(M, MODE, R, NEAR)                                                                \
    for (; row + (R) <= end; row += (R))                                                           \
        for (int64_t m = 0; m < c->m; m += M) ISA(gemv_tile)(R, M, MODE, NEAR, c, x, row, m, reach)

#define GEMV_ANY(M, MODE)                                                                          \
    do {                                                                                           \
        if (!single && npk_one_stream(t)) GEMV_ROWS(M, MODE, GEMV_R(M), 0);                        \
        else if (!single) GEMV_ROWS(M, MODE, GEMV_R(M), 1);                                        \
        GEMV_ROWS(M, MODE, 1, 0);                                                                  \
    } while (0)

INLINE int ISA(gemv_single)(const npk_thread *t, const npk_cmd *c, const int mode) {
    const int64_t size = mode == ISA(PAIRS) ? 2 : 4;
    return npk_one_stream(t) && ISA(gemv_rows)(c->m) * c->k * size <= 16 << 10;
}

#define GEMV_MODE(NAME, MODE)                                                                      \
    TARGET static void ISA(NAME)(const npk_thread *t, const npk_cmd *c, const float *x,            \
                                 int64_t row, int64_t end) {                                       \
        const int single = ISA(gemv_single)(t, c, MODE);                                           \
        const int64_t reach = ISA(reach)(t, c, MODE);                                              \
        if (c->m == 1) GEMV_ANY(1, MODE);                                                          \
        else if (c->m == 2) GEMV_ANY(2, MODE);                                                     \
        else if (c->m <= 4) GEMV_ANY(4, MODE);                                                     \
        else GEMV_ANY(ISA(MOST), MODE);                                                            \
    }

// Expands a 4-row block of b to rows of BF16.
TARGET static void ISA(block4_to_rows)(uint16_t *to, int64_t ld, const npk_cmd *c, int64_t block) {
    const int bytes = NPK_BF12_UNIT / ISA(PARTS);
    ISA(block4) q = ISA(block4_at)(c->b, c->block + block, c->k, 0);
    EACH_PART(q, 0, c->k / NPK_BLOCK4_COLUMNS, {
        for (int i = 0; i < bytes; i += 64)
            __builtin_prefetch(q.codes + part * bytes + 8192 + i, 0, 2);
        for (int r = 0; r < NPK_BLOCK4_ROWS; r++)
            v_store((float *)(to + r * ld + part * ISA(PART)), w[r]);
    })
}

// A 4-row block of weights in BF12 times M rows of activations from row m0 on. M, mode and zeros
// are constants wherever this is inlined. Sums are in the order of gemv_tile's. Each pass
// prefetches its share of a later block.
INLINE void ISA(gemv_block4_of)(const int M, const int mode, const int zeros, const npk_cmd *c,
                                const float *x, int64_t row, int64_t m0, int64_t reach) {
    const int64_t ld = ISA(gemv_ld)(c), passes = (c->m + M - 1) / M;
    const int64_t each = NPK_BF12_UNIT / ISA(PARTS) / passes, units = c->k / NPK_BLOCK4_COLUMNS;
    ISA(block4) q = ISA(block4_at)(c->b, c->block + row / NPK_BLOCK4_ROWS, c->k, 0);
    q.zeros = zeros;
    const char *ahead = q.codes + (passes == 1 ? reach : npk_block4_bytes(c->k)) +
                        m0 / M * units * ISA(PARTS) * each;
    vf acc[4][NPK_BLOCK4_ROWS];
#pragma GCC unroll 4
    for (int m = 0; m < M; m++)
#pragma GCC unroll 4
        for (int r = 0; r < NPK_BLOCK4_ROWS; r++) acc[m][r] = v_zero();
    x += m0 * ld;
    EACH_PART(q, 0, units, {
        for (int64_t i = 0; i < each; i += 64) __builtin_prefetch(ahead + part * each + i, 0, 2);
        const float *at = x + part * (mode == ISA(PAIRS) ? VL : 2 * VL);
        vf odd[NPK_BLOCK4_ROWS];
        _Pragma("GCC unroll 4") for (int r = 0; r < NPK_BLOCK4_ROWS; r++) {
            odd[r] = v_zero();
            if (mode != ISA(PAIRS)) v_split(w[r], &w[r], &odd[r]);
        }
        _Pragma("GCC unroll 4") for (int m = 0; m < M; m++)
            _Pragma("GCC unroll 4") for (int r = 0; r < NPK_BLOCK4_ROWS; r++) acc[m][r] =
                ISA(gemv_step)(acc[m][r], at + m * ld, w[r], odd[r], mode);
    })
    float sums[4][VL];
#pragma GCC unroll 4
    for (int m = 0; m < M; m++) v_store(sums[m], v_sums(acc[m], NPK_BLOCK4_ROWS));
    const int rows = (int)npk_min(NPK_BLOCK4_ROWS, c->n - row);
    ISA(put_few)(c, m0, npk_min(M, c->m - m0), row, rows, sums[0], VL);
}

INLINE void ISA(gemv_block4)(const int M, const int mode, const npk_cmd *c, const float *x,
                             int64_t row, int64_t m0, int64_t reach) {
    if (((const npk_bf12 *)c->b)->zeros) ISA(gemv_block4_of)(M, mode, 1, c, x, row, m0, reach);
    else ISA(gemv_block4_of)(M, mode, 0, c, x, row, m0, reach);
}

// The same by way of rows of BF16 in scratch. With registers for few sums, each weight would
// otherwise be decoded for every two rows of activations.
INLINE void ISA(gemv_block4_rows)(const int mode, const npk_cmd *c, const float *x, int64_t row) {
    const int64_t prepared = ISA(gemv_rows)(c->m) * ISA(gemv_ld)(c) * 4;
    uint16_t *rows = (uint16_t *)((char *)x + prepared);
    npk_cmd of = *c;
    of.b = rows, of.bt = NPK_BF16, of.ldb = ISA(block4_ld)(c);
    of.y = npk_to(c->y, c->yt, row), of.n = npk_min(NPK_BLOCK4_ROWS, c->n - row);
    if (c->flags & NPK_FUSED) of.c = npk_at(c->c, c->ct, row);
    ISA(block4_to_rows)(rows, of.ldb, c, row / NPK_BLOCK4_ROWS);
    for (int64_t m = 0; m < c->m; m += ISA(MOST)) {
        int64_t r = 0;
        for (; r + 2 <= of.n; r += 2) ISA(gemv_tile)(2, ISA(MOST), mode, 1, &of, x, r, m, 0);
        for (; r < of.n; r++) ISA(gemv_tile)(1, ISA(MOST), mode, 0, &of, x, r, m, 0);
    }
}

#define GEMV_BLOCKS4(NAME, MODE)                                                                   \
    TARGET static void ISA(NAME)(const npk_thread *t, const npk_cmd *c, const float *x,            \
                                 int64_t row, int64_t end) {                                       \
        const int64_t reach = ISA(reach)(t, c, MODE);                                              \
        for (; row < end; row += NPK_BLOCK4_ROWS) {                                                \
            if (c->m == 1) ISA(gemv_block4)(1, MODE, c, x, row, 0, reach);                         \
            else if (c->m == 2) ISA(gemv_block4)(2, MODE, c, x, row, 0, reach);                    \
            else if (VREGS < 32) ISA(gemv_block4_rows)(MODE, c, x, row);                           \
            else                                                                                   \
                for (int64_t m = 0; m < c->m; m += 4)                                              \
                    ISA(gemv_block4)(4, MODE, c, x, row, m, reach);                                \
        }                                                                                          \
    }

TARGET static int64_t ISA(gemv_chunks)(const npk_cmd *c, int phase, int threads) {
    (void)phase;
    int64_t step = npk_step_rows(c, threads, 4);
    return (c->n + step - 1) / step;
}

#ifndef NPK_HAVE_PAIRS

GEMV_MODE(gemv_floats, ISA(FLOATS))
GEMV_MODE(gemv_halfs, ISA(HALFS))
GEMV_MODE(gemv_split, ISA(SPLIT))
GEMV_BLOCKS4(gemv_blocks4, ISA(SPLIT))

TARGET static void ISA(gemv)(npk_thread *t, const npk_cmd *c, int phase, int64_t chunk) {
    (void)phase;
    const int mode = ISA(gemv_mode)(c);
    int64_t step = npk_step_rows(c, t->threads, 4);
    int64_t row = chunk * step, end = npk_min(c->n, row + step);
    ISA(gemv_prepare)(t, c, mode);
    const float *x = (const float *)t->scratch;
    if (c->bt == NPK_BF12X4) ISA(gemv_blocks4)(t, c, x, row, end);
    else if (mode == ISA(FLOATS)) ISA(gemv_floats)(t, c, x, row, end);
    else if (mode == ISA(HALFS)) ISA(gemv_halfs)(t, c, x, row, end);
    else ISA(gemv_split)(t, c, x, row, end);
}

#else

GEMV_MODE(gemv_pairs, ISA(PAIRS))
GEMV_BLOCKS4(gemv_blocks4, ISA(PAIRS))

TARGET static void ISA(gemv)(npk_thread *t, const npk_cmd *c, int phase, int64_t chunk) {
    (void)phase;
    int64_t step = npk_step_rows(c, t->threads, 4);
    int64_t row = chunk * step, end = npk_min(c->n, row + step);
    ISA(gemv_prepare)(t, c, ISA(PAIRS));
    const float *x = (const float *)t->scratch;
    if (c->bt == NPK_BF12X4) ISA(gemv_blocks4)(t, c, x, row, end);
    else ISA(gemv_pairs)(t, c, x, row, end);
}

#endif

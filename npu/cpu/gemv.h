// Products of few rows: decoding. Weights are read once, from where they lie, and the time is that of reading them.
//
// Two consecutive bfloat16 are one 32-bit lane: a shift gives the even one as a float and a mask the odd one, cheaper than widening. So the
// activations are kept with the even and the odd elements of each 2*VL apart, and the weights need no shuffle. Every row is summed in the same order
// whatever their number.

enum {
    ISA(FLOATS), // FP32 weights, activations in order
    ISA(HALFS),  // FP16 weights, activations in order
    ISA(SPLIT),  // BF16 weights, activations split into even and odd
    ISA(DOT)     // BF16 weights and activations, multiplied as pairs
};

INLINE int ISA(gemv_mode)(const npk_cmd *c) {
    if (c->bt == NPK_F32) return ISA(FLOATS);
    if (c->bt == NPK_F16) return ISA(HALFS);
#ifdef NPK_HAVE_DP
    if (c->at == NPK_BF16) return ISA(DOT);
#endif
    return ISA(SPLIT);
}

// Rows of activations are taken one, two, four or eight at a time, eight only where there are registers for their sums. Others are padded with zeros; of
// more, the weights come from a near cache the second time.
enum { ISA(MOST) = VREGS == 32 ? 8 : 4 };
INLINE int64_t ISA(gemv_rows)(int64_t m) { return m <= 2 ? m : m <= 4 ? 4 : npk_up(m, ISA(MOST)); }

// Floats from row to row of the prepared activations: not a multiple of a large power of two, so that rows do not share cache sets.
INLINE int64_t ISA(gemv_ld)(const npk_cmd *c) { return npk_up(c->k, 2 * VL) + 2 * VL; }

// Elements from row to row where quads become rows of BF16: no multiple of a large power of two, so that rows do not share cache sets.
INLINE int64_t ISA(quads_ld)(const npk_cmd *c) { return c->k % 2048 == 2016 ? c->k + 64 : c->k + 32; }

#include "fixed.h"

TARGET static int64_t ISA(gemv_scratch)(const npk_cmd *c) {
    if (c->bt >= NPK_Q8_0) return ISA(fixed_bytes)(c);
    return ISA(gemv_rows)(c->m) * ISA(gemv_ld)(c) * 4 + (c->bt == NPK_BF12 ? NPK_BF12_ROWS * ISA(quads_ld)(c) * 2 : 0);
}

// Every thread brings the activations into its own scratch: cheaper than waiting until another has.
TARGET static void ISA(gemv_prepare)(npk_thread *t, const npk_cmd *c, int mode) {
    const npk_cmd *p = t->prepared;
    if (p == c || (p && p->kind == NPK_GEMV && p->a == c->a && p->at == c->at && p->m == c->m && p->k == c->k && p->lda == c->lda &&
                   !(p->flags & (NPK_UNITS | NPK_TILES)) && p->bt < NPK_Q8_0 && ISA(gemv_mode)(p) == mode))
        return;
    int64_t ld = ISA(gemv_ld)(c);
    float *x = (float *)t->scratch;
    for (int64_t m = 0; m < ISA(gemv_rows)(c->m); m++, x += ld) {
        if (m >= c->m) {
            memset(x, 0, (size_t)ld * 4);
            continue;
        }
        int64_t from = m * c->lda;
        if (mode == ISA(DOT)) {
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
            for (int64_t i = 0; i < c->k; i++) x[i / (2 * VL) * (2 * VL) + i % 2 * VL + i % (2 * VL) / 2] = a[i];
            continue;
        }
        ROW(c->k, { PUT(x, NPK_F32, 0, GET(c->a, c->at, from)); });
    }
    t->prepared = c;
}

// A block of 2*VL weights as two vectors.
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
#ifdef NPK_HAVE_DP
    if (mode == ISA(DOT)) return v_dp(acc, v_load(x), w0);
#endif
    (void)mode;
    return v_fma(v_load(x + VL), w1, v_fma(v_load(x), w0, acc));
}

// Bytes that a thread asks for ahead of what it reads from front to back. CPUs read ahead by themselves, but most not far enough: an EPYC of the fifth generation reads the
// weights of SmolLM2-135M in three quarters of the time when asked for what comes 8 KB later. One of the fourth reads far enough, and requests that go further hold it up, as
// long as the loop is short and its activations leave room in the nearest cache: one core reads quads for one row of 2048 activations at 28 GB/s when asked hardly ahead and at
// 21 when asked 8 KB, but for four rows at 11 and 25.
INLINE int64_t ISA(reach)(const npk_thread *t, const npk_cmd *c, const int mode) {
    return t->follows && mode == ISA(DOT) && c->k <= (c->m == 1 ? 8192 : c->m == 2 ? 2048 : 0) ? 768 : 8192;
}

// R rows of weights times M rows of activations from row m0 on; R, M, mode and near, the cache that is asked to read ahead, are constants wherever this is
// inlined. The arrays have constant sizes, and loops over them are unrolled, because GCC keeps only such in registers.
INLINE void ISA(gemv_tile)(const int R, const int M, const int mode, const int near, const npk_cmd *c, const float *x, int64_t row, int64_t m0, int64_t reach) {
    const int64_t ld = ISA(gemv_ld)(c), size = mode == ISA(FLOATS) ? 4 : 2, k = c->k, stride = c->ldb * size;
    const char *w = (const char *)c->b + row * stride;
    // Ahead of the reads: the next rows where rows are short, else further on in these. Each pass over the weights asks for its share, so that
    // memory is busy in all of them. One row alone is a stream that runs on into the next rows.
    const int64_t far = R == 1 ? reach : stride <= 4096 ? R * stride : 2048, passes = (c->m + M - 1) / M;
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
        const float *at = x + (mode == ISA(DOT) ? i / 2 : i);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            const char *from = w + r * stride + i * size;
            vf w0, w1;
            if (near) __builtin_prefetch(from + ahead[r]);
            else __builtin_prefetch(from + ahead[r], 0, 2);
            ISA(gemv_weights)(from, mode, &w0, &w1);
#pragma GCC unroll 8
            for (int m = 0; m < M; m++) acc[m][r] = ISA(gemv_step)(acc[m][r], at + m * ld, w0, w1, mode);
        }
    }
    if (i < k)
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            char tail[2 * VL * 4] = {0};
            vf w0, w1;
            memcpy(tail, w + r * stride + i * size, (size_t)((k - i) * size));
            ISA(gemv_weights)(tail, mode, &w0, &w1);
#pragma GCC unroll 8
            for (int m = 0; m < M; m++)
                acc[m][r] = ISA(gemv_step)(acc[m][r], x + m * ld + (mode == ISA(DOT) ? i / 2 : i), w0, w1, mode);
        }
#pragma GCC unroll 8
    for (int m = 0; m < M; m++)
        if (m0 + m < c->m) ISA(put)(c, m0 + m, row, v_sums(acc[m], R), R);
}

// Rows of weights at a time: as many as leave registers for the sums, and one where memory is read in one stream and the activations fill no more than half of
// the nearest cache, which would else be read for every row from the next one.
#define GEMV_R(M) ((M) == 8 ? 3 : VREGS == 32 || (M) == 1 ? 4 : 2)

#define GEMV_ROWS(M, MODE, NEAR)                                                                                                          \
    do {                                                                                                                                  \
        for (; !single && row + GEMV_R(M) <= end; row += GEMV_R(M))                                                                       \
            for (int64_t m = 0; m < c->m; m += M) ISA(gemv_tile)(GEMV_R(M), M, MODE, NEAR, c, x, row, m, reach);                          \
        for (; row < end; row++)                                                                                                          \
            for (int64_t m = 0; m < c->m; m += M) ISA(gemv_tile)(1, M, MODE, NEAR, c, x, row, m, reach);                                  \
    } while (0)

#define GEMV_EACH(MODE, NEAR)                                                                                                             \
    do {                                                                                                                                  \
        if (c->m == 1) GEMV_ROWS(1, MODE, NEAR);                                                                                          \
        else if (c->m == 2) GEMV_ROWS(2, MODE, NEAR);                                                                                     \
        else if (c->m <= 4) GEMV_ROWS(4, MODE, NEAR);                                                                                     \
        else GEMV_ROWS(ISA(MOST), MODE, NEAR);                                                                                            \
    } while (0)

#define GEMV_MODE(NAME, MODE)                                                                                                             \
    TARGET static void ISA(NAME)(const npk_thread *t, const npk_cmd *c, const float *x, int64_t row, int64_t end) {                        \
        const int single = t->stream && ISA(gemv_rows)(c->m) * c->k * (MODE == ISA(DOT) ? 2 : 4) <= 16 << 10;                           \
        const int64_t reach = ISA(reach)(t, c, MODE);                                                                                    \
        if (t->stream) GEMV_EACH(MODE, 0);                                                                                                   \
        else GEMV_EACH(MODE, 1);                                                                                                          \
    }

GEMV_MODE(gemv_floats, ISA(FLOATS))
GEMV_MODE(gemv_halfs, ISA(HALFS))
GEMV_MODE(gemv_split, ISA(SPLIT))
#ifdef NPK_HAVE_DP
GEMV_MODE(gemv_dot, ISA(DOT))
#endif

// The rows of a quad of b.
TARGET static void ISA(quad_to_rows)(uint16_t *to, int64_t ld, const npk_cmd *c, int64_t quad) {
    ISA(quad) q = ISA(quad_at)(c->b, c->p[0] + quad, c->k, 0);
    EACH_PART(q, 0, c->k / NPK_BF12_COLUMNS, {
        for (int i = 0; i < NPK_BF12_UNIT / ISA(PARTS); i += 64) __builtin_prefetch(q.codes + part * (NPK_BF12_UNIT / ISA(PARTS)) + 8192 + i, 0, 2);
        for (int r = 0; r < NPK_BF12_ROWS; r++) v_store((float *)(to + r * ld + part * ISA(PART)), w[r]);
    })
}

// A quad of weights in BF12 times M rows of activations from row m0 on; M, mode and zeros are constants wherever this is inlined. Sums are in the order of gemv_tile's.
// Every pass asks for its share of what lies ahead.
INLINE void ISA(gemv_quad_of)(const int M, const int mode, const int zeros, const npk_cmd *c, const float *x, int64_t row, int64_t m0, int64_t reach) {
    const int64_t ld = ISA(gemv_ld)(c), passes = (c->m + M - 1) / M, each = NPK_BF12_UNIT / ISA(PARTS) / passes, units = c->k / NPK_BF12_COLUMNS;
    ISA(quad) q = ISA(quad_at)(c->b, c->p[0] + row / NPK_BF12_ROWS, c->k, 0);
    q.zeros = zeros;
    const char *ahead = q.codes + (passes == 1 ? reach : npk_quad_bytes(c->k)) + m0 / M * units * ISA(PARTS) * each;
    vf acc[4][NPK_BF12_ROWS];
#pragma GCC unroll 4
    for (int m = 0; m < M; m++)
#pragma GCC unroll 4
        for (int r = 0; r < NPK_BF12_ROWS; r++) acc[m][r] = v_zero();
    x += m0 * ld;
    EACH_PART(q, 0, units, {
        for (int64_t i = 0; i < each; i += 64) __builtin_prefetch(ahead + part * each + i, 0, 2);
        const float *at = x + part * (mode == ISA(DOT) ? VL : 2 * VL);
        vf odd[NPK_BF12_ROWS];
        _Pragma("GCC unroll 4") for (int r = 0; r < NPK_BF12_ROWS; r++) {
            odd[r] = v_zero();
            if (mode != ISA(DOT)) v_split(w[r], &w[r], &odd[r]);
        }
        _Pragma("GCC unroll 4") for (int m = 0; m < M; m++)
            _Pragma("GCC unroll 4") for (int r = 0; r < NPK_BF12_ROWS; r++) acc[m][r] = ISA(gemv_step)(acc[m][r], at + m * ld, w[r], odd[r], mode);
    })
    const int rows = (int)npk_min(NPK_BF12_ROWS, c->n - row);
#pragma GCC unroll 4
    for (int m = 0; m < M; m++)
        if (m0 + m < c->m) ISA(put)(c, m0 + m, row, v_sums(acc[m], NPK_BF12_ROWS), rows);
}

INLINE void ISA(gemv_quad)(const int M, const int mode, const npk_cmd *c, const float *x, int64_t row, int64_t m0, int64_t reach) {
    if (((const npk_bf12 *)c->b)->zeros) ISA(gemv_quad_of)(M, mode, 1, c, x, row, m0, reach);
    else ISA(gemv_quad_of)(M, mode, 0, c, x, row, m0, reach);
}

// The same by way of rows of BF16 behind the activations: where there are registers for few sums, each would else be put together for every two rows of activations.
INLINE void ISA(gemv_quad_rows)(const int mode, const npk_cmd *c, const float *x, int64_t row) {
    uint16_t *rows = (uint16_t *)((char *)x + ISA(gemv_rows)(c->m) * ISA(gemv_ld)(c) * 4);
    npk_cmd of = *c;
    of.b = rows, of.bt = NPK_BF16, of.ldb = ISA(quads_ld)(c);
    of.y = npk_to(c->y, c->yt, row), of.n = npk_min(NPK_BF12_ROWS, c->n - row);
    if (c->flags & NPK_JOINED) of.c = npk_at(c->c, c->ct, row);
    ISA(quad_to_rows)(rows, of.ldb, c, row / NPK_BF12_ROWS);
    for (int64_t m = 0; m < c->m; m += ISA(MOST)) {
        int64_t r = 0;
        for (; r + 2 <= of.n; r += 2) ISA(gemv_tile)(2, ISA(MOST), mode, 1, &of, x, r, m, 0);
        for (; r < of.n; r++) ISA(gemv_tile)(1, ISA(MOST), mode, 1, &of, x, r, m, 0);
    }
}

#define GEMV_QUADS(NAME, MODE)                                                                                                            \
    TARGET static void ISA(NAME)(const npk_thread *t, const npk_cmd *c, const float *x, int64_t row, int64_t end) {                       \
        const int64_t reach = ISA(reach)(t, c, MODE);                                                                                    \
        for (; row < end; row += NPK_BF12_ROWS) {                                                                                         \
            if (c->m == 1) ISA(gemv_quad)(1, MODE, c, x, row, 0, reach);                                                                  \
            else if (c->m == 2) ISA(gemv_quad)(2, MODE, c, x, row, 0, reach);                                                             \
            else if (VREGS < 32) ISA(gemv_quad_rows)(MODE, c, x, row);                                                                    \
            else                                                                                                                          \
                for (int64_t m = 0; m < c->m; m += 4) ISA(gemv_quad)(4, MODE, c, x, row, m, reach);                                       \
        }                                                                                                                                 \
    }

GEMV_QUADS(gemv_quads_split, ISA(SPLIT))
#ifdef NPK_HAVE_DP
GEMV_QUADS(gemv_quads_dot, ISA(DOT))
#endif

INLINE int64_t ISA(gemv_step_rows)(const npk_cmd *c, int threads) { return npk_step_rows(c, threads, 4); }

TARGET static int64_t ISA(gemv_chunks)(const npk_cmd *c, int phase, int threads) {
    (void)phase;
    if (c->bt >= NPK_Q8_0) return ISA(fixed_chunks)(c, threads);
    int64_t step = ISA(gemv_step_rows)(c, threads);
    return (c->n + step - 1) / step;
}

TARGET static void ISA(gemv)(npk_thread *t, const npk_cmd *c, int phase, int64_t chunk) {
    (void)phase;
    if (c->bt >= NPK_Q8_0) {
        ISA(gemv_fixed)(t, c, chunk);
        return;
    }
    int mode = ISA(gemv_mode)(c);
    int64_t step = ISA(gemv_step_rows)(c, t->threads), row = chunk * step, end = npk_min(c->n, row + step);
    ISA(gemv_prepare)(t, c, mode);
    const float *x = (const float *)t->scratch;
    if (c->bt == NPK_BF12) {
#ifdef NPK_HAVE_DP
        if (mode == ISA(DOT)) {
            ISA(gemv_quads_dot)(t, c, x, row, end);
            return;
        }
#endif
        ISA(gemv_quads_split)(t, c, x, row, end);
        return;
    }
    switch (mode) {
    case ISA(FLOATS): ISA(gemv_floats)(t, c, x, row, end); break;
    case ISA(HALFS): ISA(gemv_halfs)(t, c, x, row, end); break;
#ifdef NPK_HAVE_DP
    case ISA(DOT): ISA(gemv_dot)(t, c, x, row, end); break;
#endif
    default: ISA(gemv_split)(t, c, x, row, end);
    }
}

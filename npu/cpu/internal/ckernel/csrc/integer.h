// GEMV with quantized weights as sums of integers.
//
// Every 32 activations are converted to integers of 16 bits with a scale in FP32: x = s * X, where
// the largest magnitude becomes 32767 and the others are rounded to nearest. An activation is off
// by at most 2^-16 of the largest of its 32, far below the precision of BF16 results. If results
// are FP32, a second term of 15 bits holds the remainder, and the error is 2^-30.
//
// Sums of X times quants over 32 elements (16 where scales change) are exact integers. They are
// converted to FP32, multiplied by both scales, and added in FP32 in the order of the elements, so
// a row's result does not depend on how many rows are computed at once.
//
// Activations of 8 bits would be no faster for one row, because decode is memory-bound with 16, and
// their error would be 2^-8, above that of BF16.
//
// A block with an activation that is not finite makes the row NaN. One whose largest magnitude is
// below 2^-100 counts as zero.

// 32 activations as integers. In each four the first and the third come first, in the order in
// which quants are decoded.
typedef struct ISA(integers) {
    int16_t x[32];
    float scale;
    float sum; // scale times the sum of x
    // minus bias times the sums of x[0..15] and x[16..31]; [0] is for both if scales do not change
    // between them
    int32_t less[2];
} ISA(integers);

// Returns the number of integers that an activation becomes. Each is a row to the kernels, which
// take one, two or four rows at a time.
INLINE int ISA(terms)(const npk_cmd *c) { return npk_makes_floats(c) ? 2 : 1; }
INLINE int64_t ISA(integer_rows)(const npk_cmd *c) { return c->m * ISA(terms)(c); }
INLINE int64_t ISA(integer_up)(int64_t rows) { return rows <= 2 ? rows : npk_up(rows, 4); }

TARGET static int64_t ISA(integer_scratch)(const npk_cmd *c) {
    return ISA(integer_up)(ISA(integer_rows)(c)) * (c->k / 32) * (int64_t)sizeof(ISA(integers));
}

// Converts 32 activations, term by term, with the terms of an activation each_term blocks apart.
// These are plain loops, which compilers vectorize.
INLINE void ISA(to_integers)(ISA(integers) *to, int terms, int64_t each_term, const uint16_t *a,
                             ISA(form) f) {
    int16_t top = 0;
    for (int i = 0; i < 32; i++) {
        const int16_t size = (int16_t)(a[i] & 0x7fff); // BF16 without its sign sorts like integers
        top = size > top ? size : top;
    }
    const int finite = top < 0x7f80;
    const uint32_t bits = (uint32_t)top << 16;
    float largest;
    memcpy(&largest, &bits, sizeof largest);
    if (!finite || largest < 0x1p-100f) {
        for (int l = 0; l < terms; l++) {
            memset(to + l * each_term, 0, sizeof *to);
            if (!finite) to[l * each_term].scale = to[l * each_term].sum = NAN;
        }
        return;
    }
    const float whole = terms == 2 ? 0x7fffp15f : 0x7fffp0f;
    const vf inverse = v_set1(whole / largest);
    float exact[32];
    for (int i = 0; i < 32; i += VL) {
        const vf v = v_mul(v_bf16(a + i), inverse);
        // two terms need no rounding: the truncated bits are beyond the precision of FP32
        v_store(exact + i, terms == 2 ? v : v_round(v));
    }
    int32_t all[32], q[32];
    for (int i = 0; i < 32; i++) all[i] = (int32_t)exact[i];
    for (int l = 0; l < terms; l++, to += each_term) {
        const int down = terms == 2 && l == 0 ? 15 : 0, mask = terms == 2 && l == 1 ? 0x7fff : -1;
        for (int i = 0; i < 32; i++) q[i] = all[i] >> down & mask;
        int32_t sum[2] = {0, 0};
        for (int i = 0; i < 16; i++) sum[0] += q[i];
        for (int i = 0; i < 16; i++) sum[1] += q[16 + i];
        for (int i = 0; i < 32; i += 4) {
            to->x[i] = (int16_t)q[i], to->x[i + 1] = (int16_t)q[i + 2];
            to->x[i + 2] = (int16_t)q[i + 1], to->x[i + 3] = (int16_t)q[i + 3];
        }
        to->scale = largest / whole;
        if (terms == 2 && l == 0) to->scale *= 0x1p15f;
        to->sum = to->scale * (float)(sum[0] + sum[1]);
        if (f.scales != ISA(HALVED)) {
            sum[0] += sum[1];
            sum[1] = 0;
        }
        for (int h = 0; h < 2; h++) to->less[h] = -f.bias * sum[h];
    }
}

// Every thread converts the activations for itself, as in GEMV with other weights.
TARGET static void ISA(integer_prepare)(npk_thread *t, const npk_cmd *c) {
    const npk_cmd *p = t->prepared;
    const ISA(form) f = ISA(form_of)(c->bt);
    if (p == c) return;
    if (p && p->kind == NPK_GEMV && p->table == c->table && p->a == c->a && p->m == c->m &&
        p->k == c->k && p->lda == c->lda && ISA(terms)(p) == ISA(terms)(c)) {
        const ISA(form) g = ISA(form_of)(p->bt);
        if (f.bias == g.bias && (f.scales == ISA(HALVED)) == (g.scales == ISA(HALVED))) return;
    }
    const int64_t units = c->k / 32, rows = ISA(integer_rows)(c);
    const int terms = ISA(terms)(c);
    ISA(integers) *x = (ISA(integers) *)t->scratch;
    for (int64_t m = 0; m < c->m; m++)
        for (int64_t u = 0; u < units; u++)
            ISA(to_integers)(x + m * terms * units + u, terms, units,
                             (const uint16_t *)c->a + m * c->lda + u * 32, f);
    memset(x + rows * units, 0, (size_t)((ISA(integer_up)(rows) - rows) * units) * sizeof *x);
    t->prepared = c;
}

// V vectors of a group, from lane on, times M rows of activations from m0 on. Type, M and V are
// constants wherever this is inlined.
INLINE void ISA(integer_tile)(const int type, const int M, const int V, const npk_cmd *c,
                              const ISA(integers) *x, int64_t group, int lane, int64_t m0) {
    const ISA(form) f = ISA(form_of)(type);
    const int halves = f.scales == ISA(HALVED) ? 2 : 1, steps = f.high < 0 ? 2 : 4,
              words = f.high < 0 ? 8 : 4;
    const int64_t units = c->k / 32;
    const char *g = (const char *)c->b + group * ISA(group_bytes)(f, c->k),
               *unit = g + ISA(scale_bytes)(f, c->k);
    vf acc[4][2];
#pragma GCC unroll 4
    for (int m = 0; m < M; m++)
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) acc[m][v] = v_zero();
    x += m0 * units;
    for (int64_t u = 0; u < units; u++, x++, unit += f.words * 64) {
        vi sum[4][2][2];
#pragma GCC unroll 4
        for (int m = 0; m < M; m++)
#pragma GCC unroll 4
            for (int v = 0; v < V; v++)
#pragma GCC unroll 4
                for (int h = 0; h < halves; h++) sum[m][v][h] = vi_set1(x[m * units].less[h]);
        if (m0 == 0 && lane == 0)
            for (int i = 0; i < f.words; i++) __builtin_prefetch(unit + 2048 + i * 64);
#pragma GCC unroll 8
        for (int j = 0; j < words; j++)
#pragma GCC unroll 4
            for (int i = 0; i < steps; i++) {
                // Pairs of activations: the even elements of each four, then the odd ones.
                const int e = ISA(element)(f, j, i), pair = e / 4 * 2 + e % 2,
                          h = halves == 2 ? e / 16 : 0;
#pragma GCC unroll 4
                for (int v = 0; v < V; v++) {
                    vi q = ISA(quants)(f, unit, lane + v * VL, j, i);
#pragma GCC unroll 4
                    for (int m = 0; m < M; m++)
                        sum[m][v][h] = vi_dot(sum[m][v][h], q, vi_pair(x[m * units].x + 2 * pair));
                }
            }
#pragma GCC unroll 4
        for (int v = 0; v < V; v++)
#pragma GCC unroll 4
            for (int h = 0; h < halves; h++) {
                vf scale, minimum;
                ISA(factors)(f, g, 2 * u + h, lane + v * VL, &scale, &minimum);
#pragma GCC unroll 4
                for (int m = 0; m < M; m++) {
                    const ISA(integers) *a = &x[m * units];
                    acc[m][v] =
                        v_fma(vi_float(sum[m][v][h]), v_mul(scale, v_set1(a->scale)), acc[m][v]);
                    if (f.scales == ISA(AFFINE) || f.scales == ISA(NESTED))
                        acc[m][v] = v_fma(minimum, v_set1(a->sum), acc[m][v]);
                }
            }
    }
    // The sums of an activation's two terms are added.
    const int parts = ISA(terms)(c);
    float sums[4][2 * VL];
#pragma GCC unroll 4
    for (int v = 0; v < V; v++) {
        if (parts == 2) {
#pragma GCC unroll 4
            for (int m = 0; m + 1 < M; m += 2)
                v_store(sums[m / 2] + v * VL, v_add(acc[m][v], acc[m + 1][v]));
        } else {
#pragma GCC unroll 4
            for (int m = 0; m < M; m++) v_store(sums[m] + v * VL, acc[m][v]);
        }
    }
    const int64_t column = group * ISA(LANES) + lane, row = m0 / parts;
    const int64_t rows = npk_min(M / parts, c->m - row);
#pragma GCC unroll 4
    for (int v = 0; v < V; v++) {
        const int64_t at = column + v * VL, columns = npk_min(VL, c->n - at);
        if (columns > 0) ISA(put_few)(c, row, rows, at, (int)columns, sums[0] + v * VL, 2 * VL);
    }
}

INLINE void ISA(integer_tiles)(const int type, const int M, const npk_cmd *c,
                               const ISA(integers) *x, int64_t group) {
    const int V = M == 1 && VL < ISA(LANES) ? 2 : 1;
    for (int64_t m = 0; m < ISA(integer_rows)(c); m += M)
        for (int lane = 0; lane < ISA(LANES); lane += V * VL)
            ISA(integer_tile)(type, M, V, c, x, group, lane, m);
}

#define INTEGER(type)                                                                              \
    TARGET static void ISA(integer_##type)(const npk_cmd *c, const ISA(integers) *x,              \
                                           int64_t group) {                                        \
        int64_t rows = ISA(integer_rows)(c);                                                       \
        if (rows == 1) ISA(integer_tiles)(type, 1, c, x, group);                                   \
        else if (rows == 2) ISA(integer_tiles)(type, 2, c, x, group);                              \
        else ISA(integer_tiles)(type, 4, c, x, group);                                             \
    }
EACH_GROUPED(INTEGER)
#undef INTEGER

TARGET static void ISA(gemv_integer_chunk)(npk_thread *t, const npk_cmd *c, int64_t chunk) {
    int64_t groups = (c->n + ISA(LANES) - 1) / ISA(LANES), step = ISA(group_step)(c, t->threads);
    ISA(integer_prepare)(t, c);
    const ISA(integers) *x = (const ISA(integers) *)t->scratch;
    for (int64_t g = chunk * step, end = npk_min(groups, g + step); g < end; g++) {
        switch (c->bt) {
#define INTEGER(type)                                                                              \
    case type: ISA(integer_##type)(c, x, g); break;
            EACH_GROUPED(INTEGER)
#undef INTEGER
        }
    }
}

TARGET static void ISA(gemv_integer)(npk_thread *t, const npk_cmd *c, int phase, int64_t chunk) {
    (void)phase;
    ISA(gemv_integer_chunk)(t, c, chunk);
}

#define INTEGER_TABLE                                                                              \
    {                                                                                              \
        .of =                                                                                      \
            {                                                                                      \
                [NPK_GEMV] = {NULL, ISA(group_chunks), ISA(gemv_integer), ISA(integer_scratch)},   \
            },                                                                                     \
    }

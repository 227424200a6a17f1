// Products of BF16 activations with grouped weights, as pairs of BF16 (vdpbf16ps). Quants less their bias are whole numbers of at most eight bits, which BF16
// holds exactly, and so are their products with activations in FP32. Sums over the elements that share a scale come first and are scaled after: a value
// costs a shift and a look-up, and nothing is rounded but FP32 sums. Until the end all is 2^-13 of what it is, so that no sum over a unit overflows
// that is no more than its largest activation when it is scaled.
//
// Pairs are those that words of quants hold: of every four elements the first and the third, and the second and the fourth.

enum {
    ISA(PAIRS) = ISA(UNIT) / 2, // of a unit
    ISA(UNITS) = 8,             // of a block of K: 16 KB of a panel, which stay in the nearest cache
    // Bytes that are asked for ahead of time, into the second-level cache, mostly those of the next groups, and on CPUs that read ahead by themselves from there into the nearest.
    // One core of an EPYC of the fourth generation read groups of Q4_K at 28 GB/s like the first, at 29.5 like both, and at 12 on its own; two, where memory gave them 35, at 32 and at 34.
    ISA(AHEAD) = 16 << 10,
    ISA(NEAR) = 6 << 10,
    ISA(WEIGHTS) = ISA(UNITS) * ISA(PAIRS) * ISA(NR), // floats of a block of a panel
    ISA(FACTORS) = 2 * ISA(UNITS) * ISA(NR),          // and of the scales that go with it
    ISA(ROWS) = (NPK_EXACT_ROWS + MR - 1) / MR * MR,
};
#define UNITS_DOWN 0x1p-13f
#define UNITS_UP 0x1p13f
_Static_assert(VL == ISA(LANES), "a vector is a group's rows");

// The BF16 of every quant less the bias, times 2^-13. Quants of four bits are looked up with whatever follows them in the fifth.
typedef struct ISA(table) { vi v[2]; } ISA(table);

INLINE ISA(table) ISA(table_of)(ISA(form) f) {
    uint16_t t[64];
    ISA(table) out;
    for (int i = 0; i < 64; i++) {
        float q = (float)((f.high < 0 ? 0 : i & ((16 << f.high) - 1)) - f.bias) * UNITS_DOWN;
        uint32_t bits;
        memcpy(&bits, &q, 4);
        t[i] = (uint16_t)(bits >> 16);
    }
    for (int i = 0; i < 2; i++) out.v[i] = vi_load(t + 32 * i);
    return out;
}

// The p-th pair of a unit as it comes out of its words, for VL rows.
INLINE vf ISA(whole)(ISA(form) f, const char *unit, int p, const ISA(table) *t) {
    const int each = f.high < 0 ? 2 : 4, j = p / each, i = p % each;
    if (f.high == 0) return vi_lookup32(t->v[0], vi_shr(vi_load(unit + j * 64), 4 * i));
    vi q = ISA(quants)(f, unit, 0, j, i);
    if (f.high == 1) return vi_lookup32(t->v[0], q);
    if (f.high == 2) return vi_lookup64(t->v[0], t->v[1], q);
    return vi_whole(q, f.bias * UNITS_DOWN);
}

// Its place in a unit of activations.
INLINE int ISA(place_of)(ISA(form) f, int p) {
    const int each = f.high < 0 ? 2 : 4, e = ISA(element)(f, p / each, p % each);
    return e / 4 * 2 + e % 2;
}

// The pairs of a unit of activations.
INLINE vf ISA(fours)(const uint16_t *a) { return v_swap_fours(v_load((const float *)a)); }

// Few rows: decoding.

// Rows of activations at a time.
INLINE int ISA(units_abreast)(int64_t m) { return m <= 2 ? (int)m : m <= 4 ? 4 : 8; }

// A thread keeps activations as it multiplies them, M rows side by side: [rows / M][units][pairs][M], and behind all of them the sums of their units, times 2^-13: [rows / M][units][M].
INLINE int64_t ISA(units_x)(const npk_cmd *c) { return npk_up(c->m, ISA(units_abreast)(c->m)) * (c->k / 2); } // floats before the sums
TARGET static int64_t ISA(units_bytes)(const npk_cmd *c) { return (ISA(units_x)(c) + ISA(units_x)(c) / ISA(PAIRS)) * 4; }

TARGET static void ISA(units_prepare)(npk_thread *t, const npk_cmd *c) {
    const npk_cmd *p = t->prepared;
    if (p == c || (p && p->kind == NPK_GEMV && (p->flags & NPK_UNITS) && p->a == c->a && p->m == c->m && p->k == c->k && p->lda == c->lda)) return;
    const int64_t units = c->k / ISA(UNIT), M = ISA(units_abreast)(c->m);
    float *x = (float *)t->scratch, *sums = x + ISA(units_x)(c);
    if (c->m % M) memset(x, 0, (size_t)ISA(units_bytes)(c)); // rows that are not there
    for (int64_t m = 0; m < c->m; m++)
        for (int64_t u = 0; u < units; u++) {
            const int64_t at = (m / M * units + u) * M, row = m % M;
            vf even, odd, pairs = ISA(fours)((const uint16_t *)c->a + m * c->lda + u * ISA(UNIT));
            float values[ISA(PAIRS)];
            v_split(pairs, &even, &odd);
            v_store(values, pairs);
            for (int i = 0; i < ISA(PAIRS); i++) x[at * ISA(PAIRS) + i * M + row] = values[i];
            sums[at + row] = v_sum(v_add(even, odd)) * UNITS_DOWN;
        }
    t->prepared = c;
}

// A group times M rows of activations from m0 on. Every row's pairs are summed in two chains, whatever M is. Type and M are constants wherever this is inlined.
INLINE void ISA(units_tile)(const int type, const int M, const npk_cmd *c, const float *x, const ISA(table) *t, int64_t group, int64_t m0, int near) {
    const ISA(form) f = ISA(form_of)(type);
    const int64_t units = c->k / ISA(UNIT), each = ISA(group_bytes)(f, c->k) / units;
    const char *g = (const char *)c->b + group * ISA(group_bytes)(f, c->k), *unit = g + ISA(scale_bytes)(f, c->k);
    const float *sums = x + ISA(units_x)(c) + m0 * units;
    vf acc[8], common[2] = {v_zero(), v_zero()};
#pragma GCC unroll 8
    for (int m = 0; m < M; m++) acc[m] = v_zero();
    x += m0 * units * ISA(PAIRS);
    for (int64_t u = 0; u < units; u++, unit += f.words * 64, x += ISA(PAIRS) * M, sums += M) {
        vf sum[8][2], scale[2], minimum;
#pragma GCC unroll 8
        for (int m = 0; m < M; m++) sum[m][0] = sum[m][1] = v_zero();
        if (m0 == 0)
            for (int64_t i = u * each; i < (u + 1) * each; i += 64) {
                __builtin_prefetch(g + ISA(AHEAD) + i, 0, 2);
                if (near) __builtin_prefetch(g + ISA(NEAR) + i);
            }
        if (u % 8 == 0) ISA(common)(f, g, 2 * u, 0, common);
#pragma GCC unroll 16
        for (int p = 0; p < ISA(PAIRS); p++) {
            const int pair = ISA(place_of)(f, p), chain = f.scales == ISA(HALVED) ? pair / 8 : pair % 2;
            const vf w = ISA(whole)(f, unit, p, t);
#pragma GCC unroll 8
            for (int m = 0; m < M; m++) sum[m][chain] = v_dp1(sum[m][chain], x + pair * M + m, w);
        }
        ISA(factors_of)(f, g, 2 * u, 0, common, &scale[0], &minimum);
        if (f.scales == ISA(HALVED)) ISA(factors_of)(f, g, 2 * u + 1, 0, common, &scale[1], &minimum);
#pragma GCC unroll 8
        for (int m = 0; m < M; m++) {
            if (f.scales == ISA(HALVED)) acc[m] = v_fma(sum[m][1], scale[1], v_fma(sum[m][0], scale[0], acc[m]));
            else acc[m] = v_fma(v_add(sum[m][0], sum[m][1]), scale[0], acc[m]);
            if (f.scales == ISA(AFFINE) || f.scales == ISA(NESTED)) acc[m] = v_fma(v_set1(sums[m]), minimum, acc[m]);
        }
    }
    const int64_t row = group * VL, left = npk_min(VL, c->n - row);
#pragma GCC unroll 8
    for (int m = 0; m < M; m++) {
        if (m0 + m >= c->m) break;
        ISA(put)(c, m0 + m, row, v_mul(acc[m], v_set1(UNITS_UP)), left);
    }
}

#define UNITS(type)                                                                                                                       \
    TARGET static void ISA(units_##type)(const npk_cmd *c, const float *x, int64_t group, int64_t end, int near) {                        \
        const ISA(table) t = ISA(table_of)(ISA(form_of)(type));                                                                           \
        for (; group < end; group++) {                                                                                                    \
            if (c->m == 1) ISA(units_tile)(type, 1, c, x, &t, group, 0, near);                                                            \
            else if (c->m == 2) ISA(units_tile)(type, 2, c, x, &t, group, 0, near);                                                       \
            else if (c->m <= 4) ISA(units_tile)(type, 4, c, x, &t, group, 0, near);                                                       \
            else                                                                                                                          \
                for (int64_t m = 0; m < c->m; m += 8) ISA(units_tile)(type, 8, c, x, &t, group, m, near);                                 \
        }                                                                                                                                 \
    }
EACH_GROUPED(UNITS)
#undef UNITS

TARGET static void ISA(gemv_units)(npk_thread *t, const npk_cmd *c, int phase, int64_t chunk) {
    (void)phase;
    int64_t groups = (c->n + VL - 1) / VL, step = ISA(fixed_step)(c, t->threads), end = npk_min(groups, (chunk + 1) * step);
    ISA(units_prepare)(t, c);
    switch (c->bt) {
#define UNITS(type) case type: ISA(units_##type)(c, (const float *)t->scratch, chunk * step, end, t->follows); break;
        EACH_GROUPED(UNITS)
#undef UNITS
    }
}

// More rows, up to NPK_EXACT_ROWS, by the scheme of gemm.h: a block of a panel of weights is multiplied while it is in the nearest cache. Behind a panel of activations are the sums of its units, [units][MR], and behind a panel of weights two
// factors for each unit, [units][2][NR]: scale and minimum, or the scales of both halves.

INLINE int64_t ISA(units_panel)(const npk_cmd *c) { return (c->k / 2 + c->k / ISA(UNIT)) * MR; } // floats

// One panel of activations.
TARGET static void ISA(pack_units)(npk_thread *t, const npk_cmd *c, int phase, int64_t panel) {
    (void)t, (void)phase;
    int64_t rows = npk_min(MR, c->m - panel * MR);
    float *dst = (float *)c->y + panel * ISA(units_panel)(c), *sums = dst + c->k / 2 * MR;
    for (int64_t u = 0; u < c->k / ISA(UNIT); u++) {
        vf r[VL], sum = v_zero();
        for (int i = 0; i < VL; i++) r[i] = i < rows ? ISA(fours)((const uint16_t *)c->a + (panel * MR + i) * c->lda + u * ISA(UNIT)) : v_zero();
        v_transpose(r);
        for (int j = 0; j < VL; j++) {
            vf even, odd;
            v_split(r[j], &even, &odd);
            sum = v_add(sum, v_add(even, odd));
            v_storen(dst + (u * ISA(PAIRS) + j) * MR, r[j], MR);
        }
        v_storen(sums + u * MR, v_mul(sum, v_set1(UNITS_DOWN)), MR);
    }
}

// One panel of weights: columns column.., units from.. of them.
INLINE void ISA(panel_units)(const int type, float *dst, float *factors, const npk_cmd *c, int64_t column, int64_t from, int64_t units) {
    const ISA(form) f = ISA(form_of)(type);
    const ISA(table) t = ISA(table_of)(f);
    for (int v = 0; v < NV; v++) {
        const int64_t group = column / VL + v;
        const char *g = (const char *)c->b + group * ISA(group_bytes)(f, c->k), *unit = g + ISA(scale_bytes)(f, c->k) + from * f.words * 64;
        float *to = dst + v * VL, *factor = factors + v * VL;
        if (group * VL >= c->n) {
            for (int64_t i = 0; i < units * ISA(PAIRS); i++) v_store(to + i * ISA(NR), v_zero());
            for (int64_t i = 0; i < units * 2; i++) v_store(factor + i * ISA(NR), v_zero());
            continue;
        }
        for (int64_t u = from; u < from + units; u++, unit += f.words * 64, to += ISA(PAIRS) * ISA(NR), factor += 2 * ISA(NR)) {
            vf scale, minimum;
#pragma GCC unroll 8
            for (int i = 0; i < f.words; i++) __builtin_prefetch(unit + ISA(AHEAD) + i * 64, 0, 2);
#pragma GCC unroll 16
            for (int p = 0; p < ISA(PAIRS); p++) v_store(to + ISA(place_of)(f, p) * ISA(NR), ISA(whole)(f, unit, p, &t));
            ISA(factors)(f, g, 2 * u, 0, &scale, &minimum);
            v_store(factor, scale);
            if (f.scales == ISA(HALVED)) ISA(factors)(f, g, 2 * u + 1, 0, &minimum, &scale);
            v_store(factor + ISA(NR), minimum);
        }
    }
}

TARGET static void ISA(panel_of_units)(float *dst, float *factors, const npk_cmd *c, int64_t column, int64_t from, int64_t units) {
    switch (c->bt) {
#define UNITS(type) case type: ISA(panel_units)(type, dst, factors, c, column, from, units); break;
        EACH_GROUPED(UNITS)
#undef UNITS
    }
}

// Some rows of a panel, half of them at most: sums over a unit, or half of one, are scaled and added to those over all units, and both stay in registers. What came before is in
// part [.][NR]. Rows (mr) and scales are constants wherever this is inlined.
INLINE void ISA(units_rows)(const int mr, const int scales, int64_t units, const float *a, const float *sums, const float *b, const float *factors, float *part) {
    const int halves = scales == ISA(HALVED) ? 2 : 1;
    vf acc[MR / 2][NV];
#pragma GCC unroll 16
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
        for (int v = 0; v < NV; v++) acc[i][v] = v_load(part + i * ISA(NR) + v * VL);
    for (int64_t u = 0; u < units; u++, sums += MR, factors += 2 * ISA(NR))
#pragma GCC unroll 2
        for (int h = 0; h < halves; h++) {
            vf sum[MR / 2][NV];
#pragma GCC unroll 16
            for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
                for (int v = 0; v < NV; v++) sum[i][v] = v_zero();
            for (int s = 0; s < ISA(PAIRS) / halves; s++, a += MR, b += ISA(NR)) {
                vf w[NV];
#pragma GCC unroll 4
                for (int v = 0; v < NV; v++) w[v] = v_load(b + v * VL);
#pragma GCC unroll 16
                for (int i = 0; i < mr; i++) {
                    vf x = v_set1(a[i]);
#pragma GCC unroll 4
                    for (int v = 0; v < NV; v++) sum[i][v] = v_dp(sum[i][v], x, w[v]);
                }
            }
#pragma GCC unroll 4
            for (int v = 0; v < NV; v++) {
                const vf scale = v_load(factors + h * ISA(NR) + v * VL), minimum = v_load(factors + ISA(NR) + v * VL);
#pragma GCC unroll 16
                for (int i = 0; i < mr; i++) {
                    acc[i][v] = v_fma(sum[i][v], scale, acc[i][v]);
                    if (scales == ISA(AFFINE)) acc[i][v] = v_fma(v_set1(sums[i]), minimum, acc[i][v]);
                }
            }
        }
#pragma GCC unroll 16
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
        for (int v = 0; v < NV; v++) v_store(part + i * ISA(NR) + v * VL, acc[i][v]);
}

// A panel, six rows at a time, and four where six would leave more of them unused: a prompt of 32 is two panels and eight rows.
#define UNITS_ROWS(name, scales)                                                                                                          \
    TARGET static void ISA(name)(int64_t rows, int64_t units, const float *a, const float *sums, const float *b, const float *factors,    \
                                 float *part) {                                                                                           \
        enum { MORE = MR / 2, FEWER = MR / 3 };                                                                                           \
        for (int64_t i = 0, left; (left = rows - i) > 0;) {                                                                               \
            if (left <= FEWER || (left > MORE && left <= 2 * FEWER)) {                                                                    \
                ISA(units_rows)(FEWER, scales, units, a + i, sums + i, b, factors, part + i * ISA(NR));                                   \
                i += FEWER;                                                                                                               \
            } else {                                                                                                                      \
                ISA(units_rows)(MORE, scales, units, a + i, sums + i, b, factors, part + i * ISA(NR));                                    \
                i += MORE;                                                                                                                \
            }                                                                                                                             \
        }                                                                                                                                 \
    }
UNITS_ROWS(units_plain, ISA(PLAIN))
UNITS_ROWS(units_affine, ISA(AFFINE))
UNITS_ROWS(units_halved, ISA(HALVED))

TARGET static int64_t ISA(gemm_units_bytes)(const npk_cmd *c) {
    (void)c;
    return (int64_t)(ISA(WEIGHTS) + ISA(FACTORS) + ISA(ROWS) * ISA(NR)) * 4;
}

TARGET static void ISA(gemm_units)(npk_thread *t, const npk_cmd *c, int phase, int64_t chunk) {
    (void)phase;
    const ISA(plan) p = ISA(gemm_plan)(c, t->threads);
    const int64_t all = c->k / ISA(UNIT), panels = (c->n + ISA(NR) - 1) / ISA(NR), first = chunk / p.parts * p.nb, end = npk_min(panels, first + p.nb);
    const int64_t row = chunk % p.parts * p.mb, rows = npk_min(p.mb, c->m - row);
    const int scales = ISA(form_of)(c->bt).scales;
    float *weights = (float *)t->scratch, *factors = weights + ISA(WEIGHTS), *parts = factors + ISA(FACTORS);
    t->prepared = NULL;
    for (int64_t column = first * ISA(NR); column < end * ISA(NR); column += ISA(NR))
        for (int64_t from = 0; from < all; from += ISA(UNITS)) {
            const int64_t units = npk_min(ISA(UNITS), all - from);
            if (npk_cancelled(t)) return;
            ISA(panel_of_units)(weights, factors, c, column, from, units);
            for (int64_t r = 0; r < rows; r += MR) {
                const float *panel = (const float *)c->a + (row + r) / MR * ISA(units_panel)(c), *a = panel + from * ISA(PAIRS) * MR;
                const float *sums = panel + (all * ISA(PAIRS) + from) * MR;
                const int64_t mr = npk_min(MR, rows - r);
                float *part = parts + r * ISA(NR);
                if (from == 0)
                    for (int i = 0; i < MR * NV; i++) v_store(part + i * VL, v_zero());
                switch (scales) {
                case ISA(PLAIN): ISA(units_plain)(mr, units, a, sums, weights, factors, part); break;
                case ISA(HALVED): ISA(units_halved)(mr, units, a, sums, weights, factors, part); break;
                default: ISA(units_affine)(mr, units, a, sums, weights, factors, part);
                }
                if (from + units == all) ISA(put_block)(c, row + r, mr, column, npk_min(ISA(NR), c->n - column), part, ISA(NR), UNITS_UP);
            }
        }
}

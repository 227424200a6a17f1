// GEMV with quantized weights and BF16 activations as products of BF16 pairs (vdpbf16ps). Quants
// less their bias are integers of at most eight bits, which BF16 represents exactly, and their
// products with activations are exact in FP32. Sums over the elements that share a scale are scaled
// afterwards: a value takes a shift and a table look-up, and only FP32 sums are rounded. Values are
// scaled by 2^-13 until the end, so that no sum over a unit overflows whose scaled result would
// not.
//
// Pairs are in the order of words of quants: of every four elements the first and the third, then
// the second and the fourth.

enum {
    ISA(PAIRS) = ISA(UNIT) / 2, // of a unit
    // Prefetch distances in bytes: into L2 (AHEAD), mostly the next groups, and once more into L1
    // (NEAR) on CPUs that read ahead by themselves.
    ISA(AHEAD) = 16 << 10,
    ISA(NEAR) = 6 << 10,
};
#define QUANTS_DOWN 0x1p-13f
#define QUANTS_UP 0x1p13f
_Static_assert(VL == ISA(LANES), "a vector is a group's rows");

// The BF16 of every quant less the bias, times 2^-13. Quants of four bits are looked up together
// with the fifth bit, whatever that is.
typedef struct ISA(table) {
    vi v[2];
} ISA(table);

INLINE ISA(table) ISA(table_of)(ISA(form) f) {
    uint16_t t[64];
    ISA(table) out;
    for (int i = 0; i < 64; i++) {
        float q = (float)((f.high < 0 ? 0 : i & ((16 << f.high) - 1)) - f.bias) * QUANTS_DOWN;
        uint32_t bits;
        memcpy(&bits, &q, 4);
        t[i] = (uint16_t)(bits >> 16);
    }
    for (int i = 0; i < 2; i++) out.v[i] = vi_load(t + 32 * i);
    return out;
}

// Decodes the p-th pair of a unit for VL rows.
INLINE vf ISA(quants_pair)(ISA(form) f, const char *unit, int p, const ISA(table) *t) {
    const int each = f.high < 0 ? 2 : 4, j = p / each, i = p % each;
    if (f.high == 0) return vi_lookup32(t->v[0], vi_shr(vi_load(unit + j * 64), 4 * i));
    vi q = ISA(quants)(f, unit, 0, j, i);
    if (f.high == 1) return vi_lookup32(t->v[0], q);
    if (f.high == 2) return vi_lookup64(t->v[0], t->v[1], q);
    return vi_whole(q, f.bias * QUANTS_DOWN);
}

// Returns the position of the p-th pair in a unit of activations.
INLINE int ISA(pair_at)(ISA(form) f, int p) {
    const int each = f.high < 0 ? 2 : 4, e = ISA(element)(f, p / each, p % each);
    return e / 4 * 2 + e % 2;
}

// Loads the pairs of a unit of activations.
INLINE vf ISA(swapped_pairs)(const uint16_t *a) { return v_swap_fours(v_load((const float *)a)); }

// Returns the rows of activations that are multiplied at a time.
INLINE int ISA(quants_rows)(int64_t m) { return m <= 2 ? (int)m : m <= 4 ? 4 : 8; }

// A thread stores activations as it multiplies them, M rows side by side: [rows /
// M][units][pairs][M], and after all of them the sums of their units, times 2^-13: [rows /
// M][units][M].
// floats before the sums
INLINE int64_t ISA(quants_x)(const npk_cmd *c) {
    return npk_up(c->m, ISA(quants_rows)(c->m)) * (c->k / 2);
}
TARGET static int64_t ISA(quants_scratch)(const npk_cmd *c) {
    return (ISA(quants_x)(c) + ISA(quants_x)(c) / ISA(PAIRS)) * 4;
}

TARGET static void ISA(quants_prepare)(npk_thread *t, const npk_cmd *c) {
    const npk_cmd *p = t->prepared;
    if (p == c || (p && p->kind == NPK_GEMV && p->table == c->table && p->a == c->a &&
                   p->m == c->m && p->k == c->k && p->lda == c->lda))
        return;
    const int64_t units = c->k / ISA(UNIT), M = ISA(quants_rows)(c->m);
    float *x = (float *)t->scratch, *sums = x + ISA(quants_x)(c);
    if (c->m % M) memset(x, 0, (size_t)ISA(quants_scratch)(c)); // rows beyond m
    for (int64_t m = 0; m < c->m; m++)
        for (int64_t u = 0; u < units; u++) {
            const int64_t at = (m / M * units + u) * M, row = m % M;
            vf even, odd,
                pairs = ISA(swapped_pairs)((const uint16_t *)c->a + m * c->lda + u * ISA(UNIT));
            float values[ISA(PAIRS)];
            v_split(pairs, &even, &odd);
            v_store(values, pairs);
            for (int i = 0; i < ISA(PAIRS); i++) x[at * ISA(PAIRS) + i * M + row] = values[i];
            sums[at + row] = v_sum(v_add(even, odd)) * QUANTS_DOWN;
        }
    t->prepared = c;
}

// A group times M rows of activations from m0 on. Every row's pairs are summed in two chains,
// whatever M is. Type and M are constants wherever this is inlined.
INLINE void ISA(quants_tile)(const int type, const int M, const npk_cmd *c, const float *x,
                             const ISA(table) *t, int64_t group, int64_t m0, int near) {
    const ISA(form) f = ISA(form_of)(type);
    const int64_t units = c->k / ISA(UNIT), each = ISA(group_bytes)(f, c->k) / units;
    const char *g = (const char *)c->b + group * ISA(group_bytes)(f, c->k),
               *unit = g + ISA(scale_bytes)(f, c->k);
    const float *sums = x + ISA(quants_x)(c) + m0 * units;
    vf acc[8], common[2] = {v_zero(), v_zero()};
#pragma GCC unroll 8
    for (int m = 0; m < M; m++) acc[m] = v_zero();
    x += m0 * units * ISA(PAIRS);
    for (int64_t u = 0; u < units; u++, unit += f.words * 64, x += ISA(PAIRS) *M, sums += M) {
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
            const int pair = ISA(pair_at)(f, p),
                      chain = f.scales == ISA(HALVED) ? pair / 8 : pair % 2;
            const vf w = ISA(quants_pair)(f, unit, p, t);
#pragma GCC unroll 8
            for (int m = 0; m < M; m++) sum[m][chain] = v_dp1(sum[m][chain], x + pair * M + m, w);
        }
        ISA(factors_of)(f, g, 2 * u, 0, common, &scale[0], &minimum);
        if (f.scales == ISA(HALVED))
            ISA(factors_of)(f, g, 2 * u + 1, 0, common, &scale[1], &minimum);
#pragma GCC unroll 8
        for (int m = 0; m < M; m++) {
            if (f.scales == ISA(HALVED))
                acc[m] = v_fma(sum[m][1], scale[1], v_fma(sum[m][0], scale[0], acc[m]));
            else acc[m] = v_fma(v_add(sum[m][0], sum[m][1]), scale[0], acc[m]);
            if (f.scales == ISA(AFFINE) || f.scales == ISA(NESTED))
                acc[m] = v_fma(v_set1(sums[m]), minimum, acc[m]);
        }
    }
    const int64_t row = group * VL;
    float y[8][VL];
#pragma GCC unroll 8
    for (int m = 0; m < M; m++) v_store(y[m], v_mul(acc[m], v_set1(QUANTS_UP)));
    ISA(put_few)(c, m0, npk_min(M, c->m - m0), row, (int)npk_min(VL, c->n - row), y[0], VL);
}

#define QUANTS(type)                                                                               \
    TARGET static void ISA(quants_##type)(const npk_cmd *c, const float *x, int64_t group,         \
                                          int64_t end, int near) {                                 \
        const ISA(table) t = ISA(table_of)(ISA(form_of)(type));                                    \
        for (; group < end; group++) {                                                             \
            if (c->m == 1) ISA(quants_tile)(type, 1, c, x, &t, group, 0, near);                    \
            else if (c->m == 2) ISA(quants_tile)(type, 2, c, x, &t, group, 0, near);               \
            else if (c->m <= 4) ISA(quants_tile)(type, 4, c, x, &t, group, 0, near);               \
            else                                                                                   \
                for (int64_t m = 0; m < c->m; m += 8)                                              \
                    ISA(quants_tile)(type, 8, c, x, &t, group, m, near);                           \
        }                                                                                          \
    }
EACH_GROUPED(QUANTS)
#undef QUANTS

TARGET static void ISA(gemv_quants)(npk_thread *t, const npk_cmd *c, int phase, int64_t chunk) {
    (void)phase;
    int64_t groups = (c->n + VL - 1) / VL, step = ISA(group_step)(c, t->threads),
            end = npk_min(groups, (chunk + 1) * step);
    ISA(quants_prepare)(t, c);
    switch (c->bt) {
#define QUANTS(type)                                                                               \
    case type:                                                                                     \
        ISA(quants_##type)(c, (const float *)t->scratch, chunk * step, end,                        \
                           t->machine->reads_ahead);                                               \
        break;
        EACH_GROUPED(QUANTS)
#undef QUANTS
    }
}

#define QUANTS_TABLE                                                                               \
    {                                                                                              \
        .of =                                                                                      \
            {                                                                                      \
                [NPK_GEMV] = {NULL, ISA(group_chunks), ISA(gemv_quants), ISA(quants_scratch)},     \
            },                                                                                     \
    }

// Quantised weights in groups of sixteen rows (the layout is described in grouped.go): where things lie, and products of many rows with them, whose panels
// are made of the groups as they are needed.
//
// Lanes of a vector are rows, here as in a panel of weights, so that a value costs a shift, a mask, a conversion and a multiply-add, and nothing
// is turned on its side.

enum { ISA(LANES) = 16, ISA(UNIT) = 32 }; // rows of a group; elements of a row that belong together

typedef struct ISA(form) {
    int words, high; // words of quants for 32 elements; bits beyond four, -4 for bytes
    enum { ISA(PLAIN), ISA(AFFINE), ISA(NESTED), ISA(HALVED) } scales;
    int bias;
} ISA(form);

// A constant wherever type is one.
INLINE ISA(form) ISA(form_of)(int type) {
    switch (type) {
    case NPK_Q8_0: return (ISA(form)){8, -4, ISA(PLAIN), 128};
    case NPK_Q4_0: return (ISA(form)){4, 0, ISA(PLAIN), 8};
    case NPK_Q5_0: return (ISA(form)){5, 1, ISA(PLAIN), 16};
    case NPK_Q4_1: return (ISA(form)){4, 0, ISA(AFFINE), 0};
    case NPK_Q5_1: return (ISA(form)){5, 1, ISA(AFFINE), 0};
    case NPK_Q4_K: return (ISA(form)){4, 0, ISA(NESTED), 0};
    case NPK_Q5_K: return (ISA(form)){5, 1, ISA(NESTED), 0};
    default: return (ISA(form)){6, 2, ISA(HALVED), 32};
    }
}

// Bytes of the scales of a group, and of all of it.
INLINE int64_t ISA(scale_bytes)(ISA(form) f, int64_t k) {
    switch (f.scales) {
    case ISA(PLAIN): return npk_up(k / 32 * 32, 64);
    case ISA(AFFINE): return k / 32 * 64;
    case ISA(NESTED): return k / 256 * 320;
    default: return npk_up(k / 256 * 288, 64);
    }
}
INLINE int64_t ISA(group_bytes)(ISA(form) f, int64_t k) { return ISA(scale_bytes)(f, k) + k / 32 * f.words * 64; }

// The scale and the minimum of part (of 16 elements) for VL rows from lane on: a value is scale * (q - bias) + minimum.
INLINE void ISA(factors)(ISA(form) f, const char *scales, int64_t part, int lane, vf *scale, vf *minimum) {
    const char *s = scales;
    switch (f.scales) {
    case ISA(PLAIN):
        *scale = v_f16((const uint16_t *)(s + part / 2 * 32) + lane);
        *minimum = v_zero();
        break;
    case ISA(AFFINE):
        s += part / 2 * 64;
        *scale = v_f16((const uint16_t *)s + lane);
        *minimum = v_f16((const uint16_t *)s + 16 + lane);
        break;
    case ISA(NESTED): {
        s += part / 16 * 320;
        const char *small = s + 64 + part / 2 % 8 * 32 + lane;
        *scale = v_mul(v_f16((const uint16_t *)s + lane), v_u8((const uint8_t *)small));
        *minimum = v_sub(v_zero(), v_mul(v_f16((const uint16_t *)s + 16 + lane), v_u8((const uint8_t *)small + 16)));
        break;
    }
    default:
        s += part / 16 * 288;
        *scale = v_mul(v_f16((const uint16_t *)s + lane), v_i8((const int8_t *)s + 32 + part % 16 * 16 + lane));
        *minimum = v_zero();
    }
}

// Quants of VL rows as pairs of 16 bits: nibble i of each half of word j, with the bits beyond four. For bytes i is 0 or 1, and words are eight. The low
// half has element e, the high half element e+2: see place in grouped.go.
INLINE vi ISA(quants)(ISA(form) f, const char *unit, int lane, int j, int i) {
    vi q = vi_load(unit + (j * 16 + lane) * 4);
    if (f.high < 0) return i ? vi_and(vi_shr(q, 8), 0x00ff00ff) : vi_and(q, 0x00ff00ff);
    q = vi_and(vi_shr(q, 4 * i), 0x000f000f);
    if (f.high == 1) {
        vi h = vi_load(unit + (4 * 16 + lane) * 4);
        q = vi_or(q, vi_and(vi_move(h, 4 - (4 * j + i)), 0x00100010));
    } else if (f.high == 2) {
        vi h = vi_load(unit + ((4 + j / 2) * 16 + lane) * 4);
        q = vi_or(q, vi_and(vi_move(h, 4 - 2 * (4 * (j % 2) + i)), 0x00300030));
    }
    return q;
}

// The first element of a pair of quants; the second is two further on.
INLINE int ISA(element)(ISA(form) f, int j, int i) {
    return f.high < 0 ? 4 * j + i : 4 * j + i / 2 + i % 2 * 16;
}

// One panel of weights [steps][NR] from groups: columns column.., 32 elements of them at a time.
INLINE void ISA(panel_of)(const int type, float *dst, const npk_cmd *c, int64_t column, int64_t from, int64_t steps, const int pairs) {
    const ISA(form) f = ISA(form_of)(type);
    const int64_t k = c->k, each = ISA(group_bytes)(f, k), groups = (c->n + ISA(LANES) - 1) / ISA(LANES);
    (void)pairs;
    const int64_t first = pairs ? 2 * from : from, last = first + (pairs ? 2 * steps : steps);
    const vf bias = v_set1((float)f.bias);
    for (int v = 0; v < NV; v++) {
        int64_t group = (column + v * VL) / ISA(LANES);
        int lane = (int)((column + v * VL) % ISA(LANES));
        float *to = dst + v * VL;
        if (group >= groups) {
            for (int64_t s = 0; s < steps; s++) v_store(to + s * NV * VL, v_zero());
            continue;
        }
        const char *g = (const char *)c->b + group * each, *quants = g + ISA(scale_bytes)(f, k);
        for (int64_t e = first; e < last; e += ISA(UNIT)) {
            const char *unit = quants + e / ISA(UNIT) * f.words * 64;
            vf scale[2], minimum[2];
            for (int h = 0; h < 2; h++) {
                ISA(factors)(f, g, e / 16 + h, lane, &scale[h], &minimum[h]);
                minimum[h] = v_sub(minimum[h], v_mul(scale[h], bias));
            }
#pragma GCC unroll 8
            for (int j = 0; j < 8; j++) { // four elements that follow each other
                vf x[4];
                for (int r = 0; r < 2; r++) { // first 0 and 2, then 1 and 3
                    vi q = f.high < 0 ? ISA(quants)(f, unit, lane, j, r) : ISA(quants)(f, unit, lane, j % 4, 2 * r + j / 4);
                    x[r] = v_fma(vi_float(vi_and(q, 0xffff)), scale[j / 4], minimum[j / 4]);
                    x[r + 2] = v_fma(vi_float(vi_shr(q, 16)), scale[j / 4], minimum[j / 4]);
                }
#ifdef NPK_HAVE_DP
                if (pairs) {
                    float *at = to + (e - first + 4 * j) / 2 * NV * VL;
                    v_store(at, v_join(x[0], x[1]));
                    v_store(at + NV * VL, v_join(x[2], x[3]));
                    continue;
                }
#endif
                float *at = to + (e - first + 4 * j) * NV * VL;
                for (int r = 0; r < 4; r++) v_store(at + r * NV * VL, x[r]);
            }
        }
    }
}

#define EACH_GROUPED(X) X(NPK_Q8_0) X(NPK_Q4_0) X(NPK_Q5_0) X(NPK_Q4_1) X(NPK_Q5_1) X(NPK_Q4_K) X(NPK_Q5_K) X(NPK_Q6_K)

TARGET static void ISA(pack_grouped)(float *dst, const npk_cmd *c, int64_t column, int64_t from, int64_t steps) {
    switch (c->bt) {
#ifdef NPK_HAVE_DP
#define PANEL(type)                                                                                                                       \
    case type:                                                                                                                            \
        if (c->flags & NPK_PAIRS) ISA(panel_of)(type, dst, c, column, from, steps, 1);                                                     \
        else ISA(panel_of)(type, dst, c, column, from, steps, 0);                                                                          \
        break;
#else
#define PANEL(type) case type: ISA(panel_of)(type, dst, c, column, from, steps, 0); break;
#endif
        EACH_GROUPED(PANEL)
#undef PANEL
    }
}

// Row r of a weight with rows of n elements, as FP32: bit for bit what its file's blocks stand for, so that products are rounded before anything is
// added. Stores them as y's type.
TARGET static void ISA(embed_grouped)(const npk_cmd *c, int64_t r, int64_t to) {
    const ISA(form) f = ISA(form_of)(c->bt);
    const char *g = (const char *)c->b + r / ISA(LANES) * ISA(group_bytes)(f, c->n), *quants = g + ISA(scale_bytes)(f, c->n);
    const int lane = (int)(r % ISA(LANES)), part_lane = lane / VL * VL, at = lane % VL;
    for (int64_t e = 0; e < c->n; e += ISA(UNIT)) {
        float x[ISA(UNIT)];
        for (int h = 0; h < 2; h++) {
            vf scale, minimum;
            float s[VL], m[VL], q[VL];
            ISA(factors)(f, g, e / 16 + h, part_lane, &scale, &minimum);
            v_store(s, scale);
            v_store(m, minimum);
            for (int p = 0; p < 8; p++) { // pairs of elements
                int j = f.high < 0 ? 4 * h + p / 2 : p / 2, i = f.high < 0 ? p % 2 : 2 * (p % 2) + h;
                vi pair = vi_none();
                switch (c->bt) {
#define QUANTS(type) case type: pair = ISA(quants)(ISA(form_of)(type), quants + e / ISA(UNIT) * f.words * 64, part_lane, j, i); break;
                    EACH_GROUPED(QUANTS)
#undef QUANTS
                }
                int first = ISA(element)(f, j, i);
                for (int second = 0; second < 2; second++) {
                    v_store(q, vi_float(second ? vi_shr(pair, 16) : vi_and(pair, 0xffff)));
                    float product = s[at] * (q[at] - (float)f.bias);
                    __asm__ volatile("" : "+m"(product)); // not fused with the addition
                    x[first + 2 * second] = f.scales == ISA(AFFINE) || f.scales == ISA(NESTED) ? product + m[at] : product;
                }
            }
        }
        for (int i = 0; i < ISA(UNIT); i += VL) v_put(c->y, c->yt, to + e + i, v_load(x + i));
    }
}

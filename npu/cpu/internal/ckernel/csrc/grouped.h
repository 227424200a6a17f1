// Quantized weights in groups of 16 rows (see grouped.go in package kernel for the layout):
// addresses, and how values are decoded.
//
// The lanes of a vector are rows, as in a panel of weights, so that a value takes a shift, a mask,
// a conversion and a multiply-add, and nothing is transposed.

enum { ISA(LANES) = 16, ISA(UNIT) = 32 }; // rows of a group; elements of a unit

typedef struct ISA(form) {
    int words, high; // words of quants per unit; bits above the low four, -4 for bytes
    enum { ISA(PLAIN), ISA(AFFINE), ISA(NESTED), ISA(HALVED) } scales;
    int bias;
} ISA(form);

// Type is a constant wherever this is inlined.
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

// Return the bytes of the scales of a group, and of a whole group.
INLINE int64_t ISA(scale_bytes)(ISA(form) f, int64_t k) {
    switch (f.scales) {
    case ISA(PLAIN): return npk_up(k / 32 * 32, 64);
    case ISA(AFFINE): return k / 32 * 64;
    case ISA(NESTED): return k / 256 * 320;
    default: return npk_up(k / 256 * 288, 64);
    }
}
INLINE int64_t ISA(group_bytes)(ISA(form) f, int64_t k) {
    return ISA(scale_bytes)(f, k) + k / 32 * f.words * 64;
}

// Loads the common factors of the scales and minimums of the 256-element superblock that contains
// part (of 16 elements), for VL rows from lane on. They are 0 for forms without such a factor.
INLINE void ISA(common)(ISA(form) f, const char *scales, int64_t part, int lane, vf common[2]) {
    const uint16_t *s =
        (const uint16_t *)(scales + part / 16 * (f.scales == ISA(NESTED) ? 320 : 288)) + lane;
    common[0] = f.scales == ISA(NESTED) || f.scales == ISA(HALVED) ? v_f16(s) : v_zero();
    common[1] = f.scales == ISA(NESTED) ? v_sub(v_zero(), v_f16(s + 16)) : v_zero();
}

// Returns the scale and the minimum of a part: a value is scale * (q - bias) + minimum.
INLINE void ISA(factors_of)(ISA(form) f, const char *scales, int64_t part, int lane,
                            const vf common[2], vf *scale, vf *minimum) {
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
    case ISA(NESTED):
        s += part / 16 * 320 + 64 + part / 2 % 8 * 32 + lane;
        *scale = v_mul(common[0], v_u8((const uint8_t *)s));
        *minimum = v_mul(common[1], v_u8((const uint8_t *)s + 16));
        break;
    default:
        s += part / 16 * 288 + 32 + part % 16 * 16 + lane;
        *scale = v_mul(common[0], v_i8((const int8_t *)s));
        *minimum = v_zero();
    }
}

// The same without the common factors at hand.
INLINE void ISA(factors)(ISA(form) f, const char *scales, int64_t part, int lane, vf *scale,
                         vf *minimum) {
    vf common[2];
    ISA(common)(f, scales, part, lane, common);
    ISA(factors_of)(f, scales, part, lane, common, scale, minimum);
}

// Loads quants of VL rows as pairs of 16 bits: nibble i of each half of word j, with its high bits.
// For bytes i is 0 or 1, and there are eight words. The low half has element e, the high half
// element e+2: see kernel.Place.
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

// Returns the first element of a pair of quants. The second is two further on.
INLINE int ISA(element)(ISA(form) f, int j, int i) {
    return f.high < 0 ? 4 * j + i : 4 * j + i / 2 + i % 2 * 16;
}

// Dequantizes the four elements from 4j on of a unit. The minimum includes the bias.
INLINE void ISA(four)(ISA(form) f, const char *unit, int lane, int j, vf scale, vf minimum,
                      vf x[4]) {
    for (int r = 0; r < 2; r++) { // first 0 and 2, then 1 and 3
        vi q = f.high < 0 ? ISA(quants)(f, unit, lane, j, r)
                          : ISA(quants)(f, unit, lane, j % 4, 2 * r + j / 4);
        x[r] = v_fma(vi_float(vi_and(q, 0xffff)), scale, minimum);
        x[r + 2] = v_fma(vi_float(vi_shr(q, 16)), scale, minimum);
    }
}

#define EACH_GROUPED(X)                                                                            \
    X(NPK_Q8_0) X(NPK_Q4_0) X(NPK_Q5_0) X(NPK_Q4_1) X(NPK_Q5_1) X(NPK_Q4_K) X(NPK_Q5_K) X(NPK_Q6_K)

// Groups of a chunk of a GEMV: a megabyte, or less so that every thread gets several chunks.
INLINE int64_t ISA(group_step)(const npk_cmd *c, int threads) {
    int64_t groups = (c->n + ISA(LANES) - 1) / ISA(LANES);
    int64_t mega = (1 << 20) / npk_max(1, ISA(group_bytes)(ISA(form_of)(c->bt), c->k));
    return npk_max(1, npk_min(mega, groups / (8 * threads)));
}

TARGET static int64_t ISA(group_chunks)(const npk_cmd *c, int phase, int threads) {
    (void)phase;
    int64_t groups = (c->n + ISA(LANES) - 1) / ISA(LANES), step = ISA(group_step)(c, threads);
    return (groups + step - 1) / step;
}

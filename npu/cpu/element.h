// Vectors from and to memory of any element type, and the functions that several kernels need. Included after a vec_*.h file.

INLINE vf v_get(const void *p, int type, int64_t i) {
    switch (type) {
    case NPK_BF16: return v_bf16((const uint16_t *)p + i);
    case NPK_F16: return v_f16((const uint16_t *)p + i);
    default: return v_load((const float *)p + i);
    }
}

INLINE vf v_getn(const void *p, int type, int64_t i, int n) {
    switch (type) {
    case NPK_BF16: return v_bf16n((const uint16_t *)p + i, n);
    case NPK_F16: return v_f16n((const uint16_t *)p + i, n);
    default: return v_loadn((const float *)p + i, n);
    }
}

INLINE void v_put(void *p, int type, int64_t i, vf x) {
    switch (type) {
    case NPK_BF16: v_store_bf16((uint16_t *)p + i, x); break;
    case NPK_F16: v_store_f16((uint16_t *)p + i, x); break;
    default: v_store((float *)p + i, x);
    }
}

INLINE void v_putn(void *p, int type, int64_t i, vf x, int n) {
    switch (type) {
    case NPK_BF16: v_store_bf16n((uint16_t *)p + i, x, n); break;
    case NPK_F16: v_store_f16n((uint16_t *)p + i, x, n); break;
    default: v_storen((float *)p + i, x, n);
    }
}

// The loop over a row: BODY sees i and n, and uses GET and PUT, which are whole vectors except at the end.
#define GET(p, type, at) (n == VL ? v_get(p, type, (at) + i) : v_getn(p, type, (at) + i, n))
#define PUT(p, type, at, x) (n == VL ? v_put(p, type, (at) + i, x) : v_putn(p, type, (at) + i, x, n))
#define ROW(width, BODY)                                                                                                                  \
    do {                                                                                                                                  \
        int64_t i = 0;                                                                                                                    \
        for (; i + VL <= (width); i += VL) { const int n = VL; BODY }                                                                      \
        if (i < (width)) { const int n = (int)((width) - i); BODY }                                                                       \
    } while (0)

// e^x to about one unit in the last place: x = n ln 2 + r with |r| <= ln 2 / 2, where ln 2 comes in two parts of which the first times n is exact; a polynomial for e^r, whose
// coefficients make its largest relative error least (2^-28), but for their rounding; times 2^n. Beyond the bounds that gives zero or infinity.
INLINE vf v_exp(vf x) {
    vf c = v_clamp(x, -104.0f, 89.0f);
    vf n = v_round(v_mul(c, v_set1(1.44269504088896341f)));
    vf r = v_fma(n, v_set1(-0.693359375f), c);
    r = v_fma(n, v_set1(2.12194440e-4f), r);
    vf p = v_set1(1.3814602e-3f);
    p = v_fma(p, r, v_set1(8.368716e-3f));
    p = v_fma(p, r, v_set1(4.166839e-2f));
    p = v_fma(p, r, v_set1(0.16666521f));
    p = v_fma(p, r, v_set1(0.49999994f));
    p = v_fma(p, r, v_set1(1.0f));
    p = v_fma(p, r, v_set1(1.0f));
    return v_scale2(p, n);
}

INLINE vf v_silu(vf x) { return v_div(x, v_add(v_set1(1.0f), v_exp(v_sub(v_zero(), x)))); }

// What a product's results [row, column] and the n - 1 behind it go on to be. Flags and type are the command's, constants where this is in a loop.
INLINE vf ISA(join)(const npk_cmd *c, int flags, int type, int64_t row, int64_t column, vf sum, int n) {
    const int64_t at = row * c->ldc + column;
    const vf other = n == VL ? v_get(c->c, type, at) : v_getn(c->c, type, at, n);
    return flags & NPK_PLUS ? v_add(other, sum) : v_mul(v_silu(other), sum);
}

// The same out of line, for kernels of which there are many.
TARGET static __attribute__((noinline, unused)) vf ISA(join_call)(const npk_cmd *c, int64_t row, int64_t column, vf sum, int n) {
    return ISA(join)(c, c->flags, c->ct, row, column, sum, n);
}

// Puts a product's results [row, column] and the n - 1 behind it.
INLINE void ISA(put)(const npk_cmd *c, int64_t row, int64_t column, vf sum, int64_t n) {
    if (c->flags & NPK_JOINED) sum = ISA(join_call)(c, row, column, sum, (int)n);
    if (n == VL) v_put(c->y, c->yt, row * c->ldy + column, sum);
    else v_putn(c->y, c->yt, row * c->ldy + column, sum, (int)n);
}

// Asks for what a block of results is going to be joined with.
INLINE void ISA(join_ahead)(const npk_cmd *c, int64_t row, int64_t rows, int64_t column, int64_t columns) {
    for (int64_t i = 0; i < rows; i++) {
        const char *from = npk_at(c->c, c->ct, (row + i) * c->ldc + column);
        for (int64_t j = 0; j < columns * npk_size(c->ct); j += 64) __builtin_prefetch(from + j, 0, 2);
    }
}

INLINE void ISA(put_rows)(const npk_cmd *c, const int flags, const int ct, const int yt, int64_t row, int64_t rows, int64_t column, int64_t columns, const float *sums,
                          int64_t ld) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j += VL) {
            const int64_t n = npk_min(VL, columns - j), to = (row + i) * c->ldy + column + j;
            vf sum = v_load(sums + i * ld + j);
            if (flags & NPK_JOINED) sum = ISA(join)(c, flags, ct, row + i, column + j, sum, (int)n);
            if (n == VL) v_put(c->y, yt, to, sum);
            else v_putn(c->y, yt, to, sum, (int)n);
        }
}

// Puts a block of results that lie in rows ld apart. What models join has loops of its own.
INLINE void ISA(put_block)(const npk_cmd *c, int64_t row, int64_t rows, int64_t column, int64_t columns, const float *sums, int64_t ld) {
    const int joined = c->flags & NPK_JOINED;
    if (joined == NPK_GATED && c->ct == NPK_F32 && c->yt == NPK_BF16)
        ISA(put_rows)(c, NPK_GATED, NPK_F32, NPK_BF16, row, rows, column, columns, sums, ld);
    else if (joined == NPK_PLUS && c->ct == NPK_F32 && c->yt == NPK_F32)
        ISA(put_rows)(c, NPK_PLUS, NPK_F32, NPK_F32, row, rows, column, columns, sums, ld);
    else
        ISA(put_rows)(c, c->flags, c->ct, c->yt, row, rows, column, columns, sums, ld);
}

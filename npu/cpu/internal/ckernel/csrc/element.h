// Loads and stores of any element type, and functions that several kernels need. A vec_*.h file is
// included before it.

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

// The same as calls, for the ends of rows.
TARGET static NOINLINE vf v_get_end(const void *p, int type, int64_t i, int n) {
    return v_getn(p, type, i, n);
}
TARGET static NOINLINE void v_put_end(void *p, int type, int64_t i, vf x, int n) {
    v_putn(p, type, i, x, n);
}

// Loops over a row. BODY reads i and n and uses GET and PUT, which are whole vectors except at the
// end.
#define GET(p, type, at) (n == VL ? v_get(p, type, (at) + i) : v_get_end(p, type, (at) + i, n))
#define PUT(p, type, at, x)                                                                        \
    (n == VL ? v_put(p, type, (at) + i, x) : v_put_end(p, type, (at) + i, x, n))
#define ROW(width, BODY)                                                                           \
    do {                                                                                           \
        int64_t i = 0;                                                                             \
        for (; i + VL <= (width); i += VL) {                                                       \
            const int n = VL;                                                                      \
            BODY                                                                                   \
        }                                                                                          \
        if (i < (width)) {                                                                         \
            const int n = (int)((width) - i);                                                      \
            BODY                                                                                   \
        }                                                                                          \
    } while (0)

// Adds one step of a product: a times b, or the two products of pairs.
INLINE vf v_mac(vf acc, vf a, vf b) {
#if PAIRED
    return v_dp(acc, a, b);
#else
    return v_fma(a, b, acc);
#endif
}

// Returns e^x to about one unit in the last place: x = n ln 2 + r with |r| <= ln 2 / 2, where ln 2
// is in two parts of which the first times n is exact; a minimax polynomial for e^r (2^-28
// relative, before its coefficients are rounded); times 2^n. Beyond the clamp the result is zero or
// infinity.
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

// Applies the op that a product is fused with to its results [row, column] and the n - 1 after it.
// Flags and type are the command's, constants if this is in a loop.
INLINE vf ISA(fuse)(const npk_cmd *c, int flags, int type, int64_t row, int64_t column, vf sum,
                    int n) {
    const int64_t at = row * c->ldc + column;
    const vf other = n == VL ? v_get(c->c, type, at) : v_getn(c->c, type, at, n);
    return flags & NPK_PLUS ? v_add(other, sum) : v_mul(v_silu(other), sum);
}

// Prefetches the other operand of a fused op for a block of results.
INLINE void ISA(fuse_ahead)(const npk_cmd *c, int64_t row, int64_t rows, int64_t column,
                            int64_t columns) {
    for (int64_t i = 0; i < rows; i++) {
        const char *from = npk_at(c->c, c->ct, (row + i) * c->ldc + column);
        for (int64_t j = 0; j < columns * npk_size(c->ct); j += 64)
            __builtin_prefetch(from + j, 0, 2);
    }
}

INLINE void ISA(put_rows)(const npk_cmd *c, const int flags, const int ct, const int yt,
                          int64_t row, int64_t rows, int64_t column, int64_t columns,
                          const float *sums, int64_t ld) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j += VL) {
            const int64_t n = npk_min(VL, columns - j), to = (row + i) * c->ldy + column + j;
            vf sum = v_load(sums + i * ld + j);
            if (flags & NPK_FUSED) sum = ISA(fuse)(c, flags, ct, row + i, column + j, sum, (int)n);
            if (n == VL) v_put(c->y, yt, to, sum);
            else v_putn(c->y, yt, to, sum, (int)n);
        }
}

// Stores a block of results [rows, columns], fused or not, from rows ld apart. Columns are padded
// to whole vectors. The combinations of types that models use have specialized loops.
TARGET static NOINLINE void ISA(put_block)(const npk_cmd *c, int64_t row, int64_t rows,
                                           int64_t column, int64_t columns, const float *sums,
                                           int64_t ld) {
    const int fused = c->flags & NPK_FUSED;
    if (fused == NPK_GATED && c->ct == NPK_F32 && c->yt == NPK_BF16)
        ISA(put_rows)(c, NPK_GATED, NPK_F32, NPK_BF16, row, rows, column, columns, sums, ld);
    else if (fused == NPK_PLUS && c->ct == NPK_F32 && c->yt == NPK_F32)
        ISA(put_rows)(c, NPK_PLUS, NPK_F32, NPK_F32, row, rows, column, columns, sums, ld);
    else if (fused) ISA(put_rows)(c, fused, c->ct, c->yt, row, rows, column, columns, sums, ld);
    else ISA(put_rows)(c, 0, NPK_F32, c->yt, row, rows, column, columns, sums, ld);
}

// Stores the results of a GEMV [rows, columns], at most a vector wide, from rows ld apart. It is a
// call, because GEMV has a kernel for each number of rows.
TARGET static NOINLINE void ISA(put_few)(const npk_cmd *c, int64_t row, int64_t rows,
                                         int64_t column, int columns, const float *sums,
                                         int64_t ld) {
    if (c->flags & NPK_FUSED) {
        for (; rows > 0; rows--, row++, sums += ld) {
            const int64_t to = row * c->ldy + column;
            const vf sum = ISA(fuse)(c, c->flags, c->ct, row, column, v_load(sums), columns);
            if (columns == VL) v_put(c->y, c->yt, to, sum);
            else v_putn(c->y, c->yt, to, sum, columns);
        }
        return;
    }
    const int64_t stride = c->ldy;
    int64_t to = row * stride + column;
    switch (c->yt) {
#define EACH_ROW_OF(type)                                                                          \
    if (columns == VL)                                                                             \
        for (; rows > 0; rows--, sums += ld, to += stride) v_put(c->y, type, to, v_load(sums));    \
    else                                                                                           \
        for (; rows > 0; rows--, sums += ld, to += stride)                                         \
            v_putn(c->y, type, to, v_load(sums), columns);                                         \
    break;
    case NPK_BF16: EACH_ROW_OF(NPK_BF16)
    case NPK_F16: EACH_ROW_OF(NPK_F16)
    default: EACH_ROW_OF(NPK_F32)
#undef EACH_ROW_OF
    }
}

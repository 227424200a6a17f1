// Products of some dozens of rows, as in short prompts. Packing the weights, as gemm.h does, would
// take as long as the product. So the operands change roles: the activations come as panels of NR
// rows, and pairs of weights are broadcast from where they are. Weights are read from memory once,
// prefetched while the rows before them are multiplied; weights in BF12 are expanded to rows of
// BF16. Sums are in the order of gemm.h's, bit for bit.

// Rows of weights at a time. If rows are a multiple of 4 KB apart, their elements share a set of
// the L1 cache, which has eight ways on some CPUs.
enum { ISA(FEWER) = MR < 8 ? MR : 8 };
INLINE int64_t ISA(inplace_group)(const npk_cmd *c) {
    return c->bt == NPK_BF12X4 || c->ldb % 2048 ? MR : ISA(FEWER);
}

// Weights as they are multiplied, from w on, stride bytes from row to row, and the address to
// prefetch, each bytes per step of every panel.
typedef struct ISA(source) {
    const char *w, *ahead;
    int64_t stride, each;
} ISA(source);

// R rows of weights times V vectors of rows of activations. R and V are constants wherever this is
// inlined, and acc is in registers.
INLINE void ISA(inplace_tile)(const int R, const int V, const npk_cmd *c, const ISA(source) *from,
                              int64_t row, int64_t panel) {
    const int64_t steps = c->k / 2, stride = from->stride, each = from->each;
    const char *w = from->w, *ahead = from->ahead + panel * steps * each;
    const float *x = (const float *)c->a + panel * steps * ISA(NR);
    vf acc[MR][NV];
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) acc[r][v] = v_zero();
    for (int64_t s = 0; s < steps; s++, w += 4, x += ISA(NR), ahead += each) {
        vf a[NV];
        __builtin_prefetch(ahead, 0, 2);
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) a[v] = v_load(x + v * VL);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
            float pair;
            memcpy(&pair, w + r * stride, 4);
            const vf both = v_set1(pair);
#pragma GCC unroll 4
            for (int v = 0; v < V; v++) acc[r][v] = v_dp(acc[r][v], both, a[v]);
        }
    }
    // Each vector is one output of VL rows. Transposed, the outputs of a row are adjacent.
    const int columns = (int)npk_min(R, c->n - row);
#pragma GCC unroll 4
    for (int v = 0; v < V; v++) {
        vf t[VL];
        const int64_t first = panel * ISA(NR) + v * VL, rows = npk_min(VL, c->m - first);
        for (int r = 0; r < VL; r++) t[r] = r < R ? acc[r < MR ? r : 0][v] : v_zero();
        v_transpose(t);
        float y[VL][VL];
        for (int r = 0; r < VL; r++) v_store(y[r], t[r]);
        ISA(put_few)(c, first, rows, row, columns, y[0], VL);
    }
}

INLINE int64_t ISA(panels)(const npk_cmd *c) { return (c->m + ISA(NR) - 1) / ISA(NR); }

INLINE void ISA(inplace_panels)(const int R, const npk_cmd *c, const ISA(source) *from,
                                int64_t row) {
    const int64_t panels = ISA(panels)(c);
    for (int64_t p = 0; p < panels; p++) {
        if (c->m - p * ISA(NR) > VL) ISA(inplace_tile)(R, NV, c, from, row, p);
        else ISA(inplace_tile)(R, 1, c, from, row, p);
    }
}

// Weights in BF16 are read in place.
INLINE void ISA(inplace_rows)(const int R, const npk_cmd *c, int64_t row) {
    const char *w = (const char *)c->b + row * c->ldb * 2;
    const ISA(source)
        from = {w, w + R * c->ldb * 2, c->ldb * 2, (R * 4 + ISA(panels)(c) - 1) / ISA(panels)(c)};
    ISA(inplace_panels)(R, c, &from, row);
}

// Weights in BF12 are expanded to rows of BF16 in scratch.
enum { ISA(BLOCKS4) = MR / NPK_BLOCK4_ROWS };
_Static_assert(MR % NPK_BLOCK4_ROWS == 0, "a strip is whole quads");

TARGET static int64_t ISA(inplace_scratch)(const npk_cmd *c) {
    return c->bt == NPK_BF12X4 ? MR * ISA(block4_ld)(c) * 2 : 0;
}

INLINE void ISA(inplace_blocks4)(npk_thread *t, const npk_cmd *c, int64_t row) {
    const int64_t ld = ISA(block4_ld)(c), bytes = npk_block4_bytes(c->k),
                  block = row / NPK_BLOCK4_ROWS, panels = ISA(panels)(c);
    const npk_bf12 *b = c->b;
    const ISA(source)
        from = {t->scratch, (const char *)b->codes + (c->block + block + ISA(BLOCKS4)) * bytes,
                ld * 2, (ISA(BLOCKS4) * bytes / (c->k / 2) + panels - 1) / panels};
    // Fewer rows at the end are multiplied as MR rows, of which only those of the matrix are
    // stored.
    for (int i = 0; i < ISA(BLOCKS4) && (block + i) * NPK_BLOCK4_ROWS < c->n; i++)
        ISA(block4_to_rows)((uint16_t *)t->scratch + i * NPK_BLOCK4_ROWS * ld, ld, c, block + i);
    ISA(inplace_panels)(MR, c, &from, row);
}

INLINE int64_t ISA(inplace_step)(const npk_cmd *c, int threads) {
    return npk_step_rows(c, threads, ISA(inplace_group)(c));
}

TARGET static int64_t ISA(inplace_chunks)(const npk_cmd *c, int phase, int threads) {
    (void)phase;
    int64_t step = ISA(inplace_step)(c, threads);
    return (c->n + step - 1) / step;
}

TARGET static void ISA(inplace)(npk_thread *t, const npk_cmd *c, int phase, int64_t chunk) {
    (void)phase;
    int64_t step = ISA(inplace_step)(c, t->threads), row = chunk * step,
            end = npk_min(c->n, row + step);
    t->prepared = NULL;
    if (c->bt == NPK_BF12X4) {
        for (; row < end; row += MR) ISA(inplace_blocks4)(t, c, row);
        return;
    }
    if (ISA(inplace_group)(c) == MR)
        for (; row + MR <= end; row += MR) ISA(inplace_rows)(MR, c, row);
    for (; row + ISA(FEWER) <= end; row += ISA(FEWER)) ISA(inplace_rows)(ISA(FEWER), c, row);
    for (; row < end; row++) ISA(inplace_rows)(1, c, row);
}

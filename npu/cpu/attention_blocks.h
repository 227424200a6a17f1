// Attention of many queries with the products of gemm.h: a block of positions at a time, FP32 throughout.

// Bytes of scratch: of a chunk, its queries, their sums and statistics; of a block, keys and values; of one panel of queries, scores and weights.
INLINE int64_t ISA(most)(const npk_cmd *c) { return npk_up(ISA(queries)(c), MR * 4); }
INLINE int64_t ISA(block_bytes)(const npk_cmd *c) {
    int64_t q = ISA(most)(c), hd = npk_up(c->k, ISA(NR));
    return (q * hd * 2 + 2 * q + 2 * ISA(BK) * hd + 2 * MR * ISA(BK)) * 4;
}

// One query's scores against n positions, of which it sees some, become weights relative to the largest score so far, to which its sums are brought.
INLINE void ISA(weights_of)(float *p, int64_t seen, int64_t n, float *acc, int64_t ld, float *best, float *sum) {
    const float before = *best;
    if (seen <= 0) {
        memset(p, 0, (size_t)n * 4);
        return;
    }
    const float part = ISA(softmax)(p, seen, n, best);
    if (*best != before) {
        const float scale = before == -INFINITY ? 0 : expf(before - *best);
        const vf w = v_set1(scale);
        *sum *= scale;
        for (int64_t d = 0; d < ld; d += VL) v_store(acc + d, v_mul(v_load(acc + d), w));
    }
    *sum += part;
}

// Rows row.. of a segment for one key-value head.
TARGET static void ISA(attend_block)(npk_thread *t, const npk_cmd *c, const npk_seg *s, int64_t head, int64_t row) {
    int64_t hd = c->k, ld = npk_up(hd, ISA(NR)), group = c->n / c->p[0];
    int64_t rows = npk_min(ISA(block_rows)(c), s->rows - row), m = rows * group, most = ISA(most)(c);
    float *q = (float *)t->scratch, *acc = q + most * ld, *keys = acc + most * ld, *values = keys + ISA(BK) * ld;
    float *scores = values + ISA(BK) * ld, *weights = scores + MR * ISA(BK), *best = weights + MR * ISA(BK), *sum = best + most;
    t->prepared = NULL;

    // Queries, scaled, in acc as rows and from there as panels; then acc becomes what its name says.
    for (int64_t i = 0; i < m; i++) {
        int64_t at = ISA(place)(c, s->row + row, head, c->lda, c->p[1], i);
        float *to = acc + i * ld;
        ROW(hd, { PUT(to, NPK_F32, 0, v_mul(GET(c->a, c->at, at), v_set1(c->f[0]))); });
        best[i] = -INFINITY;
        sum[i] = 0;
    }
    npk_cmd pack = {.m = m, .k = hd, .a = acc, .at = NPK_F32, .lda = ld, .y = q};
    for (int64_t i = 0; i < (m + MR - 1) / MR; i++) ISA(pack_panel)(&pack, i, 0);
    memset(acc, 0, (size_t)(m * ld) * 4);

    int64_t limit = s->pos + row + rows; // positions that the last row sees
    for (int64_t from = 0; from < limit; from += ISA(BK)) {
        int64_t n = npk_min(ISA(BK), limit - from);
        const void *k = npk_at(s->k, c->bt, head * s->khead), *v = npk_at(s->v, c->ct, head * s->vhead);
        if (npk_cancelled(t)) return;
        for (int64_t j = 0; j < n; j += ISA(NR)) ISA(pack_nk)(keys + j * hd, k, c->bt, c->ldb, from + j, from + n, hd, 0, hd, 0);
        for (int64_t j = 0; j < hd; j += ISA(NR)) ISA(pack_kn)(values + j * n, v, c->ct, c->ldc, j, hd, 0, from, n, 0);

        // A panel of queries from scores to sums: what is in between stays in the nearest cache. No more is computed than the last of them sees.
        for (int64_t i = 0; i < m; i += MR) {
            const int64_t some = npk_min(MR, m - i), first = s->pos + row + 1 - from, seen = npk_min(n, first + (i + some - 1) / group);
            if (seen <= 0) continue;
            ISA(tile) o = {.ld = ISA(BK), .first = 1, .last = 0};
            for (int64_t j = 0; j < seen; j += ISA(NR)) {
                o.part = scores + j;
                ISA(tile_floats)(some, hd, q + i * hd, keys + j * hd, &o);
            }
            for (int64_t r = i; r < i + some; r++)
                ISA(weights_of)(scores + (r - i) * ISA(BK), npk_min(n, first + r / group), seen, acc + r * ld, ld, best + r, sum + r);
            pack = (npk_cmd){.m = some, .k = seen, .a = scores, .at = NPK_F32, .lda = ISA(BK), .y = weights};
            ISA(pack_panel)(&pack, 0, 0);
            o = (ISA(tile)){.ld = ld, .first = 0, .last = 0};
            for (int64_t j = 0; j < hd; j += ISA(NR)) {
                o.part = acc + i * ld + j;
                ISA(tile_floats)(some, seen, weights, values + j * n, &o);
            }
        }
    }
    for (int64_t i = 0; i < m; i++) {
        int64_t to = ISA(place)(c, s->row + row, head, c->ldy, c->p[2], i);
        const float *from = acc + i * ld;
        vf scale = v_set1(1.0f / sum[i]);
        ROW(hd, { PUT(c->y, c->yt, to, v_mul(GET(from, NPK_F32, 0), scale)); });
    }
}

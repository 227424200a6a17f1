// Attention of many queries with the products of gemm.h, a block of positions at a time, in FP32.
// Operands are transposed: positions are the rows of a tile of scores, and queries its columns.
// Scores are then the right operand of the next product as they are, and a query's maximum and sum
// are in a lane: nothing is transposed or reduced across a vector.
//
//	scores [positions][queries] = keys   [positions][dims] * queries [dims][queries]
//	sums   [dims][queries]     += values [dims][positions] * weights [positions][queries]

enum { ISA(QUERIES_AHEAD) = 16 }; // prefetch distance in queries

// Scratch of a chunk. NR queries are computed at a time.
typedef struct ISA(scratch_of) {
    float *queries; // panels [most / NR][hd][NR]
    float *sums;    // [most / NR][hd][NR]
    float *keys;    // panels of a block [BK / MR][hd][MR]
    float *values;  // panels of a block [hd / MR][BK][MR]
    float *scores;  // of NR queries [BK][NR], later their weights
    float *best;    // the score that weights are relative to [most], and the sum of weights
    float *sum;
    float *last; // position of each query [most]
    uintptr_t end;
} ISA(scratch_of);

// Lays out scratch from an address on. The address is an integer, so that the end of scratch at 0
// is its size.
INLINE ISA(scratch_of) ISA(scratch_at)(const npk_cmd *c, uintptr_t at) {
    const int64_t most = npk_up(ISA(queries)(c), ISA(NR)), hd = c->k;
    ISA(scratch_of) d;
#define TAKE(what, floats) (d.what = (float *)at, at += (uintptr_t)npk_up((floats) * 4, 64))
    TAKE(queries, most * hd);
    TAKE(sums, most * hd);
    TAKE(keys, npk_up(ISA(BK), MR) * hd);
    TAKE(values, ISA(BK) * npk_up(hd, MR));
    TAKE(scores, npk_up(ISA(BK), MR) * ISA(NR));
    TAKE(best, most);
    TAKE(sum, most);
    TAKE(last, most);
#undef TAKE
    d.end = at;
    return d;
}

INLINE int64_t ISA(block_bytes)(const npk_cmd *c) { return (int64_t)ISA(scratch_at)(c, 0).end; }

// Packs panels [hd / MR][n][MR] of n rows of values. Whole vectors are stored where the next one
// overwrites their ends.
INLINE void ISA(pack_values)(float *dst, const void *v, int type, int64_t ld, int64_t n,
                             int64_t hd) {
    for (int64_t d = 0; d < hd; d += MR, dst += n * MR) {
        const int width = (int)npk_min(VL, hd - d);
        for (int64_t j = 0; j < n; j++) {
            const vf x =
                width == VL ? v_get(v, type, j * ld + d) : v_getn(v, type, j * ld + d, width);
            if (j < n - 1) v_store(dst + j * MR, x);
            else v_storen(dst + j * MR, x, MR);
        }
    }
}

// Replaces scores of VL queries [positions][ld] by weights, relative to the largest score of each
// query so far, or one slightly below it. Lane i sees the positions up to last[i]; all lanes see
// the first sure ones. Returns the factor that rescales the sums so far.
INLINE vf ISA(weights_of)(float *scores, int64_t ld, int64_t positions, int64_t sure, vf last,
                          float *best, float *sum) {
    const vf before = v_load(best), top = ISA(top_of)(scores, ld, positions, sure, last, before);
    const int64_t all = npk_max(0, npk_min(sure, positions));
    vf part = v_zero();
    for (int64_t j = 0; j < all; j++) {
        const vf w = v_exp(v_sub(v_load(scores + j * ld), top));
        part = v_add(part, w);
        v_store(scores + j * ld, w);
    }
    for (int64_t j = all; j < positions; j++) {
        const vf w = v_until((float)j, last, v_exp(v_sub(v_load(scores + j * ld), top)), v_zero());
        part = v_add(part, w);
        v_store(scores + j * ld, w);
    }
    const vf scale = v_exp(v_sub(before, top));
    v_store(best, top);
    v_store(sum, v_fma(v_load(sum), scale, part));
    return scale;
}

// Rows row.. of a segment for one key-value head.
TARGET static void ISA(attend_block)(npk_thread *t, const npk_cmd *c, const npk_seg *s,
                                     int64_t head, int64_t row) {
    const int64_t hd = c->k, group = c->n / c->kv_heads,
                  rows = npk_min(ISA(block_rows)(c), s->rows - row), m = rows * group,
                  limit = s->pos + row + rows;
    const void *k = npk_at(s->k, c->bt, head * s->khead), *v = npk_at(s->v, c->ct, head * s->vhead);
    const ISA(scratch_of) d = ISA(scratch_at)(c, (uintptr_t)t->scratch);
    t->prepared = NULL;

    // Queries are scaled, stored as rows in the memory of the sums, and packed from there. They are
    // prefetched some rows ahead, because another thread has just written them.
    for (int64_t i = 0; i < m; i++) {
        const int64_t at = ISA(query_at)(c, s->row + row, head, c->lda, c->a_head, i);
        const char *ahead = npk_at(c->a, c->at,
                                   ISA(query_at)(c, s->row + row, head, c->lda, c->a_head,
                                                 npk_min(m - 1, i + ISA(QUERIES_AHEAD))));
        float *to = d.sums + i * hd;
        for (int64_t j = 0; j < hd * npk_size(c->at); j += 64) __builtin_prefetch(ahead + j);
        ROW(hd, { PUT(to, NPK_F32, 0, v_mul(GET(c->a, c->at, at), v_set1(c->scale))); });
    }
    for (int64_t q = 0; q < m; q += ISA(NR)) {
        ISA(pack_nk)(d.queries + q * hd, d.sums, NPK_F32, hd, q, m, hd, 0, hd);
        for (int64_t i = q; i < q + ISA(NR); i++) {
            d.best[i] = -INFINITY;
            d.sum[i] = 0;
            d.last[i] = (float)(s->pos + row + i / group);
        }
    }
    memset(d.sums, 0, (size_t)(npk_up(m, ISA(NR)) * hd * 4));

    for (int64_t from = 0; from < limit; from += ISA(BK)) {
        const int64_t n = npk_min(ISA(BK), limit - from);
        if (npk_cancelled(t)) return;
        const npk_cmd pack = {.m = n,
                              .k = hd,
                              .a = npk_at(k, c->bt, from * c->ldb),
                              .at = c->bt,
                              .lda = c->ldb,
                              .y = d.keys};
        for (int64_t i = 0; i < (n + MR - 1) / MR; i++) ISA(pack_panel)(&pack, i);
        ISA(pack_values)(d.values, npk_at(v, c->ct, from * c->ldc), c->ct, c->ldc, n, hd);

        for (int64_t q = 0; q < m; q += ISA(NR)) {
            float *sums = d.sums + q * hd;
            // The offset of the first query in this block, and how many of its positions the last
            // one sees.
            const int64_t first = s->pos + row + q / group - from,
                          seen = npk_min(n, s->pos + row + npk_min(m - 1, q + ISA(NR) - 1) / group +
                                                1 - from);
            if (seen <= 0) continue;
            ISA(tile) o = {.ld = ISA(NR), .first = 1};
            for (int64_t j = 0; j < seen; j += MR) {
                o.part = d.scores + j * ISA(NR);
                ISA(tile_any)(npk_min(MR, seen - j), hd, d.keys + j * hd, d.queries + q * hd, &o);
            }
            for (int i = 0; i < NV; i++) {
                const int64_t lane = q + i * VL;
                // exact below 2^24, the longest context of a plan
                const vf last = v_sub(v_load(d.last + lane), v_set1((float)from));
                const vf scale = ISA(weights_of)(d.scores + i * VL, ISA(NR), seen, first + 1, last,
                                                 d.best + lane, d.sum + lane);
                if (from > 0 && !v_all_one(scale))
                    for (int64_t j = i * VL; j < hd * ISA(NR); j += ISA(NR))
                        v_store(sums + j, v_mul(v_load(sums + j), scale));
            }
            o.first = 0;
            for (int64_t j = 0; j < hd; j += MR) {
                o.part = sums + j * ISA(NR);
                ISA(tile_any)(npk_min(MR, hd - j), seen, d.values + j * n, d.scores, &o);
            }
        }
    }
    for (int64_t q = 0; q < m; q += VL) {
        const float *sums = d.sums + q / ISA(NR) * ISA(NR) * hd + q % ISA(NR);
        ISA(put_queries)(c, s->row + row, head, q, (int)npk_min(VL, m - q), sums, ISA(NR),
                         d.sum + q);
    }
}

// Causal attention with grouped heads. Both methods take a block of positions at a time and keep,
// for each query, the largest score so far (or one slightly below it), the sum of the exponentials
// relative to it, and the weighted sum of values, so that the matrix of scores is never stored.
// Source: Milakov and Gimelshein, Online normalizer calculation for softmax (arXiv 1805.02867); Dao
// et al., FlashAttention (arXiv 2205.14135).
//
// Positions that a query must not see, but that are computed along with those of other queries,
// have weight zero: an infinity or NaN among their values also shows in earlier rows of the same
// segment.
//
// Many queries (prefill) are products of tiles: attention_blocks.h, or attention_tiles.h in the
// matrix unit. For few queries (decode) the positions are cut into spans of a fixed length, so that
// several threads can work on one head, and a second phase combines the partial results in order.

enum {
    ISA(BK) = 128, // positions of a block
#ifdef NPK_AMX_TILES
    ISA(BM) = 96, // queries of a chunk of blocks, about
#else
    ISA(BM) = 192, // more queries share more panels of keys and values
#endif
    ISA(GROWTH) = 8, // weights of blocks are at most e to this
    ISA(BN) = 32,    // positions of a span that are FP32 at a time, to stay in L1
};

_Static_assert(ISA(BK) % ISA(BN) == 0 && ISA(BN) % VL == 0 && (int)NPK_SPAN <= (int)ISA(BK),
               "scores of whole vectors fit a row of them");

// Return the rows of a chunk of a segment in blocks, and the most queries of it: a row may have
// more heads per key-value head than BM.
INLINE int64_t ISA(block_rows)(const npk_cmd *c) {
    return npk_max(1, ISA(BM) / (c->n / c->kv_heads));
}
INLINE int64_t ISA(queries)(const npk_cmd *c) { return npk_max(ISA(BM), c->n / c->kv_heads); }

// Returns the offset of a query of a chunk in a or y.
INLINE int64_t ISA(query_at)(const npk_cmd *c, int64_t row, int64_t head, int64_t ld, int64_t step,
                             int64_t query) {
    int64_t group = c->n / c->kv_heads;
    return (row + query / group) * ld + (head * group + query % group) * step;
}

// Replaces count scores by their exponentials relative to the largest of them and *best, and zeroes
// the rest up to all. Returns the sum.
INLINE float ISA(softmax)(float *p, int64_t count, int64_t all, float *best) {
    vf top = v_set1(*best), sum = v_zero();
    int64_t i = 0;
    for (; i + VL <= count; i += VL) top = v_max(top, v_load(p + i));
    float highest = v_hmax(top);
    for (; i < count; i++) highest = p[i] > highest ? p[i] : highest;
    vf high = v_set1(highest);
    ROW(count, {
        PUT(p, NPK_F32, 0, v_exp(v_sub(GET(p, NPK_F32, 0), high)));
        sum = v_add(sum, GET(p, NPK_F32, 0)); // read back: the tail's other lanes are not ours
    });
    for (i = count; i < all; i++) p[i] = 0;
    *best = highest;
    return v_sum(sum);
}

// Returns the new reference maximum of the online softmax for VL queries: the largest of their
// scores [positions][ld] and of before, or before itself if no score is much larger, because then
// the sums so far need no rescaling (as in FlashAttention-4). Lane i sees the positions up to
// last[i]; all lanes see the first sure ones.
INLINE vf ISA(top_of)(const float *scores, int64_t ld, int64_t positions, int64_t sure, vf last,
                      vf before) {
    // Four chains hide the latency.
    vf tops[4] = {before, before, before, before};
    const int64_t all = npk_max(0, npk_min(sure, positions)), fours = all / 4 * 4;
    for (int64_t j = 0; j < fours; j += 4)
        for (int i = 0; i < 4; i++) tops[i] = v_max(tops[i], v_load(scores + (j + i) * ld));
    for (int64_t j = fours; j < all; j++) tops[0] = v_max(tops[0], v_load(scores + j * ld));
    for (int64_t j = all; j < positions; j++)
        tops[0] =
            v_max(tops[0], v_until((float)j, last, v_load(scores + j * ld), v_set1(-INFINITY)));
    const vf most = v_max(v_max(tops[0], tops[1]), v_max(tops[2], tops[3]));
    return v_over(most, v_add(before, v_set1(ISA(GROWTH))), most, before);
}

// Stores the results of some of VL queries of a chunk from q on: sums [dims][ld] divided by sum,
// transposed to rows of y.
INLINE void ISA(put_queries)(const npk_cmd *c, int64_t row, int64_t head, int64_t q, int some,
                             const float *sums, int64_t ld, const float *sum) {
    const int64_t hd = c->k;
    const vf scale = v_div(v_set1(1.0f), v_load(sum));
    int64_t to[VL];
    for (int j = 0; j < some; j++) to[j] = ISA(query_at)(c, row, head, c->ldy, c->y_head, q + j);
    for (int64_t i = 0; i < hd; i += VL) {
        const int n = (int)npk_min(VL, hd - i);
        vf r[VL];
        for (int j = 0; j < VL; j++)
            r[j] = j < n ? v_mul(v_load(sums + (i + j) * ld), scale) : v_zero();
        v_transpose(r);
        for (int j = 0; j < some; j++) {
            if (n == VL) v_put(c->y, c->yt, to[j] + i, r[j]);
            else v_putn(c->y, c->yt, to[j] + i, r[j], n);
        }
    }
}

#ifdef NPK_AMX_TILES
#include "attention_tiles.h"
#else
#include "attention_blocks.h"
#endif

INLINE int64_t ISA(spans)(const npk_seg *s) { return (s->pos + s->rows + NPK_SPAN - 1) / NPK_SPAN; }

// Returns the chunks of a segment for one key-value head.
INLINE int64_t ISA(chunks_of)(const npk_cmd *c, const npk_seg *s) {
    return npk_by_spans(c, s) ? ISA(spans)(s)
                              : (s->rows + ISA(block_rows)(c) - 1) / ISA(block_rows)(c);
}

TARGET static int ISA(attention_phases)(const npk_cmd *c) {
    for (int64_t i = 0; i < c->nsegs; i++)
        if (npk_by_spans(c, &c->segs[i]) && ISA(spans)(&c->segs[i]) > 1) return 2;
    return 1;
}

TARGET static int64_t ISA(attention_chunks)(const npk_cmd *c, int phase, int threads) {
    (void)threads;
    int64_t n = 0;
    for (int64_t i = 0; i < c->nsegs; i++) n += phase == 0 ? ISA(chunks_of)(c, &c->segs[i]) : 1;
    return n * c->kv_heads;
}

// Returns the scratch for a block or a span, whichever is larger. A span has queries, their sums,
// keys or values, and scores. A row may have many heads per key-value head.
TARGET static int64_t ISA(attention_scratch)(const npk_cmd *c) {
    const int64_t queries = npk_up(npk_max(NPK_SPAN_QUERIES, c->n / c->kv_heads), 4),
                  ld = npk_up(c->k, VL);
    return npk_max(ISA(block_bytes)(c), (2 * queries * ld + ISA(BK) * ld + queries * ISA(BK)) * 4);
}

// Returns the partial result of one query in one span: maximum, sum, and weighted sum of values.
INLINE float *ISA(partial)(const npk_cmd *c, const npk_seg *s, int64_t span, int64_t query,
                           int64_t head) {
    float *p = (float *)c->scratch;
    for (const npk_seg *o = c->segs; o < s; o++)
        if (npk_by_spans(c, o) && ISA(spans)(o) > 1)
            p += ISA(spans)(o) * o->rows * c->n * (c->k + 2);
    int64_t queries = s->rows * (c->n / c->kv_heads);
    return p + ((head * ISA(spans)(s) + span) * queries + query) * (c->k + 2);
}

// Converts n rows of keys or values, step elements apart, to FP32 [n][ld], padding their hd
// elements with zeros.
INLINE void ISA(widen)(float *to, int64_t ld, const void *from, int type, int64_t at, int64_t step,
                       int64_t n, int64_t hd) {
    if (type == NPK_BF16 && step == ld && hd == ld) { // as in a cache of heads of a usual size
#pragma GCC unroll 8
        for (int64_t i = 0; i < n * ld; i += VL)
            v_store(to + i, v_bf16((const uint16_t *)from + at + i));
        return;
    }
    for (int64_t j = 0; j < n; j++, to += ld, at += step) {
        memset(to + ld - VL, 0, VL * 4);
        ROW(hd, { PUT(to, NPK_F32, 0, GET(from, type, at)); });
    }
}

// Computes one query's scores against n rows of keys [n][ld], VL rows at a time.
INLINE void ISA(scores)(float *dst, const float *q, const float *keys, int64_t ld, int64_t n,
                        int64_t hd) {
    for (int64_t j = 0; j < n; j += VL) {
        vf s[VL];
        for (int i = 0; i < VL; i++) s[i] = v_zero();
        for (int64_t d = 0; d < hd; d += VL) {
            vf x = v_load(q + d);
#pragma GCC unroll 16
            for (int i = 0; i < VL; i++) s[i] = v_fma(x, v_load(keys + (j + i) * ld + d), s[i]);
        }
        v_store(dst + j, v_sums_all(s));
    }
}

// Adds to acc[hd] of Q queries their weights times n rows of values, BF16 or FP32 and ld elements
// apart, for D vectors of a row.
INLINE void ISA(accumulate)(const int Q, const int D, const int type, float *acc, int64_t ldacc,
                            const float *p, const void *values, int64_t ld, int64_t n) {
    vf s[4][4];
    for (int q = 0; q < Q; q++)
        for (int d = 0; d < D; d++) s[q][d] = v_load(acc + q * ldacc + d * VL);
    for (int64_t j = 0; j < n; j++) {
        vf v[4];
        for (int d = 0; d < D; d++) v[d] = v_get(values, type, j * ld + d * VL);
        for (int q = 0; q < Q; q++) {
            vf w = v_set1(p[q * ISA(BK) + j]);
            for (int d = 0; d < D; d++) s[q][d] = v_fma(w, v[d], s[q][d]);
        }
    }
    for (int q = 0; q < Q; q++)
        for (int d = 0; d < D; d++) v_store(acc + q * ldacc + d * VL, s[q][d]);
}

// The same for any number of queries, up to four at a time, and width values of a row. Type is a
// constant wherever this is inlined.
INLINE void ISA(accumulate_all)(const int type, int64_t queries, int64_t width, float *acc,
                                int64_t ldacc, const float *p, const void *values, int64_t ld,
                                int64_t n) {
    for (; queries > 0; queries -= 4, acc += 4 * ldacc, p += 4 * ISA(BK))
        for (int64_t d = 0; d < width; d += 4 * VL) {
            const void *v = npk_at(values, type, d);
            const int vectors = (int)npk_min(4, (width - d) / VL);
#define ACCUMULATE(Q, D)                                                                           \
    if ((queries < 4 ? queries : 4) == (Q) && vectors == (D))                                      \
    ISA(accumulate)(Q, D, type, acc + d, ldacc, p, v, ld, n)
            ACCUMULATE(1, 4);
            else ACCUMULATE(2, 4); else ACCUMULATE(3, 4);
            else ACCUMULATE(4, 4); else ACCUMULATE(1, 3);
            else ACCUMULATE(2, 3); else ACCUMULATE(3, 3);
            else ACCUMULATE(4, 3); else ACCUMULATE(1, 2);
            else ACCUMULATE(2, 2); else ACCUMULATE(3, 2);
            else ACCUMULATE(4, 2); else ACCUMULATE(1, 1);
            else ACCUMULATE(2, 1); else ACCUMULATE(3, 1);
            else ACCUMULATE(4, 1);
#undef ACCUMULATE
        }
}

// Decode: the queries of one segment and key-value head against one span of positions.
TARGET static void ISA(attend_span)(npk_thread *t, const npk_cmd *c, const npk_seg *s, int64_t head,
                                    int64_t span) {
    int64_t hd = c->k, ld = npk_up(hd, VL), group = c->n / c->kv_heads, queries = s->rows * group,
            all = npk_up(queries, 4);
    int64_t from = span * NPK_SPAN, end = npk_min(from + NPK_SPAN, s->pos + s->rows),
            n = end - from;
    float *q = (float *)t->scratch, *acc = q + all * ld, *block = acc + all * ld,
          *p = block + ISA(BK) * ld;
    t->prepared = NULL;
    memset(q, 0, (size_t)(2 * all * ld) * 4);
    for (int64_t i = 0; i < queries; i++) {
        int64_t at = ISA(query_at)(c, s->row, head, c->lda, c->a_head, i);
        float *to = q + i * ld;
        ROW(hd, { PUT(to, NPK_F32, 0, v_mul(GET(c->a, c->at, at), v_set1(c->scale))); });
    }
    for (int64_t j = 0; j < n; j += ISA(BN)) {
        int64_t some = npk_min(ISA(BN), n - j);
        // Values are prefetched with the keys and arrive while the scores are computed.
        const char *values = npk_at(s->v, c->ct, head * s->vhead + (from + j) * c->ldc);
        for (int64_t r = 0; r < some; r++, values += c->ldc * npk_size(c->ct))
            for (int64_t i = 0; i < hd * npk_size(c->ct); i += 64) __builtin_prefetch(values + i);
        ISA(widen)(block, ld, s->k, c->bt, head * s->khead + (from + j) * c->ldb, c->ldb, some, hd);
        memset(block + some * ld, 0, (size_t)((npk_up(some, VL) - some) * ld) * 4);
        for (int64_t i = 0; i < queries; i++)
            ISA(scores)(p + i * ISA(BK) + j, q + i * ld, block, ld, some, ld);
    }
    int64_t spans = ISA(spans)(s);
    float best[64], sum[64];
    // in batches of 64 queries; only very wide groups have more
    for (int64_t first = 0; first < queries; first += 64) {
        int64_t count = npk_min(64, queries - first);
        for (int64_t i = 0; i < count; i++) {
            // a row sees itself and earlier ones
            int64_t seen = npk_min(n, s->pos + (first + i) / group + 1 - from);
            best[i] = -INFINITY;
            sum[i] = seen > 0 ? ISA(softmax)(p + (first + i) * ISA(BK), seen, n, &best[i]) : 0;
            if (seen <= 0) memset(p + (first + i) * ISA(BK), 0, (size_t)n * 4);
        }
        float *sums = acc + first * ld;
        const float *weights = p + first * ISA(BK);
        if (c->ct == NPK_BF16 && hd == ld) {
            ISA(accumulate_all)(NPK_BF16, count, hd, sums, ld, weights,
                                npk_at(s->v, c->ct, head * s->vhead + from * c->ldc), c->ldc, n);
        } else {
            for (int64_t j = 0; j < n; j += ISA(BN)) {
                int64_t some = npk_min(ISA(BN), n - j);
                ISA(widen)(block, ld, s->v, c->ct, head * s->vhead + (from + j) * c->ldc, c->ldc,
                           some, hd);
                ISA(accumulate_all)(NPK_F32, count, ld, sums, ld, weights + j, block, ld, some);
            }
        }
        for (int64_t i = 0; i < count; i++) {
            const float *a = acc + (first + i) * ld;
            if (spans == 1) {
                int64_t to = ISA(query_at)(c, s->row, head, c->ldy, c->y_head, first + i);
                vf scale = v_set1(1.0f / sum[i]);
                ROW(hd, { PUT(c->y, c->yt, to, v_mul(GET(a, NPK_F32, 0), scale)); });
                continue;
            }
            float *to = ISA(partial)(c, s, span, first + i, head);
            to[0] = best[i];
            to[1] = sum[i];
            memcpy(to + 2, a, (size_t)hd * 4);
        }
    }
}

// The second phase of decode: combines the spans of one segment and key-value head, in order.
TARGET static void ISA(join_spans)(npk_thread *t, const npk_cmd *c, const npk_seg *s,
                                   int64_t head) {
    int64_t hd = c->k, spans = ISA(spans)(s), queries = s->rows * (c->n / c->kv_heads);
    float *acc = (float *)t->scratch;
    t->prepared = NULL;
    for (int64_t q = 0; q < queries; q++) {
        float best = -INFINITY, sum = 0;
        for (int64_t i = 0; i < spans; i++) best = fmaxf(best, ISA(partial)(c, s, i, q, head)[0]);
        memset(acc, 0, (size_t)npk_up(hd, VL) * 4);
        for (int64_t j = 0; j < spans; j++) {
            const float *p = ISA(partial)(c, s, j, q, head);
            if (p[1] == 0) continue; // the query sees nothing of this span
            float scale = expf(p[0] - best);
            sum += p[1] * scale;
            vf w = v_set1(scale);
            ROW(hd, { PUT(acc, NPK_F32, 0, v_fma(w, GET(p, NPK_F32, 2), GET(acc, NPK_F32, 0))); });
        }
        int64_t to = ISA(query_at)(c, s->row, head, c->ldy, c->y_head, q);
        vf scale = v_set1(1.0f / sum);
        ROW(hd, { PUT(c->y, c->yt, to, v_mul(GET(acc, NPK_F32, 0), scale)); });
    }
}

TARGET static void ISA(attention)(npk_thread *t, const npk_cmd *c, int phase, int64_t chunk) {
    int64_t heads = c->kv_heads, head = chunk % heads, piece = chunk / heads;
    for (const npk_seg *s = c->segs; s < c->segs + c->nsegs; s++) {
        int64_t pieces = phase == 0 ? ISA(chunks_of)(c, s) : 1;
        if (piece >= pieces) {
            piece -= pieces;
            continue;
        }
        if (phase == 1) {
            if (npk_by_spans(c, s) && ISA(spans)(s) > 1) ISA(join_spans)(t, c, s, head);
        } else if (npk_by_spans(c, s)) {
            ISA(attend_span)(t, c, s, head, piece);
        } else { // the last rows see most: the largest chunks first
            ISA(attend_block)(t, c, s, head, (pieces - 1 - piece) * ISA(block_rows)(c));
        }
        return;
    }
}

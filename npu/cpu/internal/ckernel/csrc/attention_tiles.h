// Attention of many queries in the matrix unit (tiles.h), with keys and values in BF16. Operands
// are transposed: positions are the rows of a tile of scores, and queries its columns. Keys are
// then left operands as they are in the cache, scores become the right operand of the next product
// without a transpose, and a query's maximum and sum are in a lane: nothing is reduced across a
// vector.
//
//	scores [positions][queries] = keys   [positions][dims] * queries [dims][queries]
//	sums   [dims][queries]     += values [dims][positions] * weights [positions][queries]
//
// Queries and weights are sums of two BF16 terms, off by at most 2^-17; keys and values are BF16 as
// they are.
//
// Products and the exponentials between them take turns: vector units run at half their rate while
// the matrix unit is busy.

enum {
    ISA(BT) = 64, // positions of a block: with heads of 64, the data of 16 queries stays in L1
};

// Scratch of a chunk. 16 queries are computed at a time.
typedef struct ISA(scratch_of) {
    char *queries; // right tiles [most / 16][hd / 32][two terms]
    char *sums;    // tiles [most / 16][hd / 16]
    char *values;  // left tiles of a block [BT / 32][hd / 16]
    char *scores;  // tiles of 16 queries [BT / 16]
    char *weights; // right tiles of 16 queries [BT / 32][two terms]
    char *keys;    // left tiles of a block's last keys [hd / 32]
    float *rows;   // 16 queries in order [16][hd]
    float *best;   // the score that weights are relative to [most], and the sum of weights
    float *sum;
    float *last; // position of each query [most]
    uintptr_t end;
} ISA(scratch_of);

// Lays out scratch from an address on. The address is an integer, so that the end of scratch at 0
// is its size.
INLINE ISA(scratch_of) ISA(scratch_at)(const npk_cmd *c, uintptr_t at) {
    const int64_t most = npk_up(ISA(queries)(c), ISA(SIDE)), hd = c->k;
    ISA(scratch_of) d;
#define TAKE(what, bytes) (d.what = (void *)at, at += (uintptr_t)(bytes))
    TAKE(queries, most * hd * 4);
    TAKE(sums, most * hd * 4);
    TAKE(values, ISA(BT) * hd * 2);
    TAKE(scores, ISA(BT) * ISA(SIDE) *4);
    TAKE(weights, ISA(BT) * ISA(SIDE) *4);
    TAKE(keys, ISA(SIDE) * hd * 2);
    TAKE(rows, ISA(SIDE) * hd * 4);
    TAKE(best, most * 4);
    TAKE(sum, most * 4);
    TAKE(last, most * 4);
#undef TAKE
    d.end = at;
    return d;
}

INLINE int64_t ISA(block_bytes)(const npk_cmd *c) { return (int64_t)ISA(scratch_at)(c, 0).end; }

// Adds to n adjacent tiles of sums, at most four, the products over a number of steps of as many
// left tiles, next bytes apart, and a right tile of two terms. Left tiles have stride bytes from
// row to row and step bytes to the next step. Sums start at zero if first is set. N is a constant
// wherever this is inlined.
INLINE void ISA(multiply_terms)(const int n, int64_t steps, const char *left, int64_t next,
                                int64_t step, int64_t stride, const char *right, char *sums,
                                int first) {
#define EACH_TILE(X) X(0) X(1) X(2) X(3)
#define ZERO(i)                                                                                    \
    if (n > i) _tile_zero(i);
#define LOAD(i)                                                                                    \
    if (n > i) _tile_loadd(i, sums + i * ISA(TILE), 64);
#define STORE(i)                                                                                   \
    if (n > i) _tile_stored(i, sums + i * ISA(TILE), 64);
    // Two at a time, so that a product need not wait for the one before it.
#define ADD(i, j)                                                                                  \
    if (n > i) _tile_loadd(4, left + i * next, stride);                                            \
    if (n > j) _tile_loadd(5, left + j * next, stride);                                            \
    if (n > i) _tile_dpbf16ps(i, 4, 6);                                                            \
    if (n > j) _tile_dpbf16ps(j, 5, 6);                                                            \
    if (n > i) _tile_dpbf16ps(i, 4, 7);                                                            \
    if (n > j) _tile_dpbf16ps(j, 5, 7);
    COMPILER_BARRIER();
    if (first) { EACH_TILE(ZERO) } else { EACH_TILE(LOAD) }
    for (int64_t s = 0; s < steps; s++, left += step, right += 2 * ISA(TILE)) {
        _tile_loadd(6, right, 64);
        _tile_loadd(7, right + ISA(TILE), 64);
        ADD(0, 1)
        ADD(2, 3)
    }
    EACH_TILE(STORE)
    COMPILER_BARRIER();
#undef EACH_TILE
#undef ZERO
#undef LOAD
#undef ADD
#undef STORE
}

enum { ISA(LEFT_TILES) = 4 };

TARGET static void ISA(multiply_terms_any)(int64_t n, int64_t steps, const char *left, int64_t next,
                                           int64_t step, int64_t stride, const char *right,
                                           char *sums, int first) {
    switch (n) {
    case 1: ISA(multiply_terms)(1, steps, left, next, step, stride, right, sums, first); break;
    case 2: ISA(multiply_terms)(2, steps, left, next, step, stride, right, sums, first); break;
    case 3: ISA(multiply_terms)(3, steps, left, next, step, stride, right, sums, first); break;
    default:
        ISA(multiply_terms)(ISA(LEFT_TILES), steps, left, next, step, stride, right, sums, first);
    }
}

// Converts 16 queries from first on to right tiles [hd / 32][two terms], scaled. Those beyond m are
// zeros.
INLINE void ISA(transpose_queries)(char *dst, float *rows, const npk_cmd *c, int64_t at,
                                   int64_t head, int64_t first, int64_t m) {
    const int64_t hd = c->k;
    for (int64_t i = 0; i < ISA(SIDE); i++) {
        float *to = rows + i * hd;
        const int64_t from = ISA(query_at)(c, at, head, c->lda, c->a_head, first + i);
        for (int64_t d = 0; d < hd; d += VL)
            v_store(to + d, first + i < m ? v_mul(v_get(c->a, c->at, from + d), v_set1(c->scale))
                                          : v_zero());
    }
    for (int64_t d = 0; d < hd; d += VL) { // half a tile
        vf r[VL];
        char *to = dst + d / ISA(STEP) * 2 * ISA(TILE) + d % ISA(STEP) / 2 * 64;
        for (int i = 0; i < VL; i++) r[i] = v_load(rows + i * hd + d);
        v_transpose(r);
        for (int i = 0; i < VL; i += 2, to += 64)
            v_terms((float *)to, (float *)(to + ISA(TILE)), r[i], r[i + 1]);
    }
}

// Interleaves two rows of BF16 to pairs. Without the second row, its numbers are zeros.
INLINE vf v_interleave(const uint16_t *even, const uint16_t *odd) {
    const __m512i e = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)even));
    if (!odd) return _mm512_castsi512_ps(e);
    return _mm512_castsi512_ps(_mm512_or_si512(
        e, _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)odd)), 16)));
}

// Converts n rows of values from row from on to left tiles [n / 32][hd / 16]. Rows beyond them are
// zeros.
INLINE void ISA(transpose_values)(char *dst, const npk_cmd *c, const uint16_t *v, int64_t from,
                                  int64_t n) {
    for (int64_t j = 0; j < n; j += ISA(STEP))
        for (int64_t d = 0; d < c->k; d += ISA(SIDE), dst += ISA(TILE)) {
            vf r[VL];
            for (int i = 0; i < VL; i++) {
                const uint16_t *even = v + (from + j + 2 * i) * c->ldc + d;
                r[i] = j + 2 * i >= n
                           ? v_zero()
                           : v_interleave(even, j + 2 * i + 1 < n ? even + c->ldc : NULL);
            }
            v_transpose(r);
            for (int i = 0; i < VL; i++) v_store((float *)(dst + i * 64), r[i]);
        }
}

// v_terms for numbers that are not negative, or the NaN of an operation, in less time: halves are
// rounded away from zero, and dependency chains are shorter.
INLINE void v_terms_fast(float *upper, float *rest, vf even, vf odd) {
    enum { HIGH_OR = 0xea }; // of three operands: the first and the second, or the third
    const __m512i half = _mm512_set1_epi32(0x8000), high = _mm512_set1_epi32((int)0xffff0000);
    const __m512i e = _mm512_add_epi32(_mm512_castps_si512(even), half),
                  o = _mm512_add_epi32(_mm512_castps_si512(odd), half);
    _mm512_storeu_si512(upper,
                        _mm512_ternarylogic_epi32(o, high, _mm512_srli_epi32(e, 16), HIGH_OR));
    const __m512i re = _mm512_add_epi32(
        _mm512_castps_si512(v_sub(even, _mm512_castsi512_ps(_mm512_and_si512(e, high)))), half);
    const __m512i ro = _mm512_add_epi32(
        _mm512_castps_si512(v_sub(odd, _mm512_castsi512_ps(_mm512_and_si512(o, high)))), half);
    _mm512_storeu_si512(rest,
                        _mm512_ternarylogic_epi32(ro, high, _mm512_srli_epi32(re, 16), HIGH_OR));
}

// Converts scores of 16 queries [positions][16] to weights as right tiles [positions / 32][two
// terms], relative to the largest score of each query so far, or one slightly below it. Lane i sees
// the positions up to last[i]; all lanes see the first sure ones. Returns the factor that rescales
// the sums so far.
INLINE vf ISA(weights_of)(char *dst, const float *scores, int64_t positions, int64_t sure, vf last,
                          float *best, float *sum) {
    const vf before = v_load(best), top = ISA(top_of)(scores, VL, positions, sure, last, before);
    const int64_t all = npk_max(0, npk_min(sure, positions));
    vf part = v_zero();
    // Both loops add up in the same order, so that results do not depend on which rows share 16.
    int64_t j = 0;
    for (; j + ISA(STEP) <= all; j += ISA(STEP), dst += 2 * ISA(TILE))
#pragma GCC unroll 2
        for (int i = 0; i < ISA(STEP); i += 2) {
            const vf even = v_exp(v_sub(v_load(scores + (j + i) * VL), top)),
                     odd = v_exp(v_sub(v_load(scores + (j + i + 1) * VL), top));
            part = v_add(part, v_add(even, odd));
            v_terms_fast((float *)(dst + i * 32), (float *)(dst + i * 32 + ISA(TILE)), even, odd);
        }
    for (; j < npk_up(positions, ISA(STEP)); j += ISA(STEP), dst += 2 * ISA(TILE))
        for (int i = 0; i < ISA(STEP); i += 2) {
            vf w[2];
            for (int odd = 0; odd < 2; odd++) {
                const int64_t at = j + i + odd;
                w[odd] = at >= positions ? v_zero() : v_exp(v_sub(v_load(scores + at * VL), top));
                if (at >= sure) w[odd] = v_until((float)at, last, w[odd], v_zero());
            }
            part = v_add(part, v_add(w[0], w[1]));
            v_terms_fast((float *)(dst + i * 32), (float *)(dst + i * 32 + ISA(TILE)), w[0], w[1]);
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
    const uint16_t *k = (const uint16_t *)s->k + head * s->khead,
                   *v = (const uint16_t *)s->v + head * s->vhead;
    // bytes from key to key, and of the queries or sums of 16 queries
    const int64_t stride = c->ldb * 2, each = hd * ISA(SIDE) * 4;
    const ISA(scratch_of) d = ISA(scratch_at)(c, (uintptr_t)t->scratch);
    t->prepared = NULL;
    ISA(tiles_begin)();
    for (int64_t q = 0; q < m; q += ISA(SIDE)) {
        ISA(transpose_queries)(d.queries + q / ISA(SIDE) *each, d.rows, c, s->row + row, head, q,
                               m);
        v_store(d.best + q, v_set1(-INFINITY));
        v_store(d.sum + q, v_zero());
        for (int i = 0; i < VL; i++) d.last[q + i] = (float)(s->pos + row + (q + i) / group);
    }
    memset(d.sums, 0, (size_t)(npk_up(m, ISA(SIDE)) * hd * 4));

    for (int64_t from = 0; from < limit; from += ISA(BT)) {
        const int64_t n = npk_min(ISA(BT), limit - from), whole = n / ISA(SIDE);
        if (npk_cancelled(t)) break;
        ISA(transpose_values)(d.values, c, v, from, n);
        // There may be no memory after the last position: the last keys are copied.
        const char *keys = (const char *)(k + from * c->ldb);
        if (n % ISA(SIDE))
            ISA(copy_rows)(d.keys, keys + whole * ISA(SIDE) *stride, stride, n % ISA(SIDE),
                           hd / ISA(STEP), hd * 2);
        for (int64_t q = 0; q < m; q += ISA(SIDE)) {
            char *sums = d.sums + q / ISA(SIDE) * each;
            const char *queries = d.queries + q / ISA(SIDE) * each;
            // The offset of the first query in this block, and how many of its positions the last
            // one sees.
            const int64_t first = s->pos + row + q / group - from,
                          seen =
                              npk_min(n, s->pos + row + npk_min(m - 1, q + ISA(SIDE) - 1) / group +
                                             1 - from);
            if (seen <= 0) continue;
            const int64_t tiles = (seen + ISA(SIDE) - 1) / ISA(SIDE);
            for (int64_t j = 0; j < npk_min(tiles, whole); j += ISA(LEFT_TILES))
                ISA(multiply_terms_any)(npk_min(ISA(LEFT_TILES), npk_min(tiles, whole) - j),
                                        hd / ISA(STEP), keys + j * ISA(SIDE) *stride,
                                        ISA(SIDE) *stride, 64, stride, queries,
                                        d.scores + j * ISA(TILE), 1);
            if (tiles > whole)
                ISA(multiply_terms_any)(1, hd / ISA(STEP), d.keys, 0, ISA(TILE), 64, queries,
                                        d.scores + whole * ISA(TILE), 1);

            // exact below 2^24, the longest context of a plan
            const vf last = v_sub(v_load(d.last + q), v_set1((float)from));
            const vf scale = ISA(weights_of)(d.weights, (const float *)d.scores, seen, first + 1,
                                             last, d.best + q, d.sum + q);
            if (from > 0 && !v_all_one(scale))
                for (int64_t i = 0; i < hd; i++)
                    v_store((float *)(sums + i * 64),
                            v_mul(v_load((const float *)(sums + i * 64)), scale));
            for (int64_t i = 0; i < hd; i += ISA(LEFT_TILES) * ISA(SIDE))
                ISA(multiply_terms_any)(npk_min(ISA(LEFT_TILES), (hd - i) / ISA(SIDE)),
                                        (seen + ISA(STEP) - 1) / ISA(STEP), d.values + i * 64,
                                        ISA(TILE), hd * 64, 64, d.weights, sums + i * 64, 0);
        }
    }
    _tile_release();
    if (npk_cancelled(t)) return;
    for (int64_t q = 0; q < m; q += ISA(SIDE)) {
        const float *sums = (const float *)(d.sums + q / ISA(SIDE) *each);
        ISA(put_queries)(c, s->row + row, head, q, (int)npk_min(VL, m - q), sums, ISA(SIDE),
                         d.sum + q);
    }
}

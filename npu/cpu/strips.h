// Weights in BF12 in strips (npk.h), for the matrix unit: how they become right tiles, and how one row of activations is multiplied with them, which is decoding.
//
// The unit would read them no faster for one row, and want a command before it that makes tiles of the activations. So vectors multiply that row, to the same bits as
// the unit would: over the sixteen pairs of a step, the products of first numbers and those of second ones are added up apart, then both together, and that to the sum.
// Subnormal numbers count as zero. Source: Intel's manual, volume 2, TDPBF16PS.

// A strip while it is read, from front to back.
typedef struct ISA(strip) {
    const char *codes;
    const uint32_t *escape, *end; // that have not been met
    int64_t until;                // the next step with an escape
    vi bases;
    int zeros;
} ISA(strip);

enum { ISA(ESCAPE_STEP) = 8 + 4 + 5 }; // bits of an escape below its step

INLINE void ISA(strip_until)(ISA(strip) *q) { q->until = q->escape < q->end ? *q->escape >> ISA(ESCAPE_STEP) : INT64_MAX; }

// Strip s of a matrix, from a step on.
INLINE ISA(strip) ISA(strip_at)(const npk_bf12 *w, int64_t s, int64_t k, int64_t step) {
    const npk_strip *head = (const npk_strip *)w->heads + s;
    ISA(strip) q = {(const char *)w->codes + s * npk_strip_bytes(k), w->escapes + head[0].escapes, w->escapes + head[1].escapes, 0, vi_none(), w->zeros != 0};
    const vi bases = _mm512_slli_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)head->bases)), 7);
    q.bases = vi_or(bases, vi_move(bases, 16));
    while (q.escape < q.end && *q.escape >> ISA(ESCAPE_STEP) < step) q.escape++;
    ISA(strip_until)(&q);
    return q;
}

// The columns of part p of a step, as pairs of sixteen rows. Escapes are anything.
INLINE void ISA(strip_read)(const ISA(strip) *q, int64_t step, int p, int zeros, vf w[4]) {
    const vi bases[4] = {q->bases, q->bases, q->bases, q->bases};
    ISA(bf12_read)(q->codes + (step * (ISA(STEP) / NPK_STRIP_COLUMNS) + p) * NPK_BF12_UNIT, bases, zeros, w);
}

// Puts a step's escapes into its tile.
TARGET static __attribute__((noinline)) void ISA(strip_patch)(char *tile, ISA(strip) *q, int64_t step) {
    uint16_t *at = (uint16_t *)tile;
    for (; q->escape < q->end && *q->escape >> ISA(ESCAPE_STEP) == step; q->escape++) {
        const uint32_t e = *q->escape, column = e >> 12 & 31, row = e >> 8 & 15;
        uint16_t *x = at + (column / 2 * NPK_STRIP_ROWS + row) * 2 + column % 2;
        *x = (uint16_t)((*x & 0x807f) | (e & 255) << 7);
    }
    ISA(strip_until)(q);
}

// A step as a right tile. Zeros is a constant wherever this is inlined.
INLINE void ISA(tile_of_strip)(char *tile, const ISA(strip) *q, int64_t step, const int zeros) {
#pragma GCC unroll 4
    for (int p = 0; p < ISA(STEP) / NPK_STRIP_COLUMNS; p++) {
        vf w[4];
        ISA(strip_read)(q, step, p, zeros, w);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) v_store((float *)(tile + (p * 4 + i) * 64), w[i]);
    }
}

TARGET static __attribute__((noinline)) void ISA(tile_with_zeros)(char *tile, const ISA(strip) *q, int64_t step) { ISA(tile_of_strip)(tile, q, step, 1); }

INLINE void ISA(right_of_strip)(char *tile, ISA(strip) *q, int64_t step) {
    if (q->zeros) ISA(tile_with_zeros)(tile, q, step);
    else ISA(tile_of_strip)(tile, q, step, 0);
    if (step == q->until) ISA(strip_patch)(tile, q, step);
}

enum {
    ISA(SOME) = 16,  // strips whose sums are put together
    ISA(FAR) = 8192, // how many bytes ahead memory is asked for
};

// The sums of strips s to s + n - 1 times a row x.
TARGET static __attribute__((noinline)) void ISA(strip_sums)(float *sums, const npk_cmd *c, int64_t s, int64_t n, const float *x) {
    const unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | _MM_FLUSH_ZERO_ON | 0x40); // the last: inputs count as zero
    WRITTEN();
    const int64_t steps = c->k / ISA(STEP);
    for (; n > 0; n--, s++, sums += VL) {
        ISA(strip) q = ISA(strip_at)(c->b, c->p[0] + s, c->k, 0);
        vf sum = v_zero();
        for (int64_t step = 0; step < steps; step++) {
            const float *a = x + step * ISA(STEP);
            vf even = v_zero(), odd = v_zero();
            char tile[ISA(TILE)];
            const int patched = step == q.until;
            if (patched) ISA(right_of_strip)(tile, &q, step);
#pragma GCC unroll 4
            for (int p = 0; p < ISA(STEP) / NPK_STRIP_COLUMNS; p++) {
                vf w[4];
                if (patched)
                    for (int i = 0; i < 4; i++) w[i] = v_load((const float *)(tile + (p * 4 + i) * 64));
                else ISA(strip_read)(&q, step, p, q.zeros, w);
                for (int i = 0; i < 3; i++) __builtin_prefetch(q.codes + (step * (ISA(STEP) / NPK_STRIP_COLUMNS) + p) * NPK_BF12_UNIT + ISA(FAR) + i * 64, 0, 2);
#pragma GCC unroll 4
                for (int i = 0; i < 4; i++, a += 2) {
                    vf first, second;
                    v_split(w[i], &first, &second);
                    even = v_fma(v_set1(a[0]), first, even);
                    odd = v_fma(v_set1(a[1]), second, odd);
                }
            }
            sum = v_add(sum, v_add(even, odd));
        }
        v_store(sums, sum);
    }
    WRITTEN();
    _mm_setcsr(mode);
}

TARGET static int64_t ISA(gemv_strips_scratch)(const npk_cmd *c) { return (c->k + ISA(SOME) * VL) * 4; }

TARGET static int64_t ISA(gemv_strips_chunks)(const npk_cmd *c, int phase, int threads) {
    (void)phase;
    const int64_t step = npk_step_rows(c, threads, VL);
    return (c->n + step - 1) / step;
}

// One row of activations, which every thread brings to FP32 in its own scratch.
TARGET static void ISA(gemv_strips)(npk_thread *t, const npk_cmd *c, int phase, int64_t chunk) {
    (void)phase;
    float *x = (float *)t->scratch, *sums = x + c->k;
    const npk_cmd *p = t->prepared;
    if (!(p == c || (p && p->kind == NPK_GEMV && p->bt == NPK_STRIPS && p->a == c->a && p->k == c->k)))
        for (int64_t i = 0; i < c->k; i += VL) v_store(x + i, v_get(c->a, c->at, i));
    t->prepared = c;
    const int64_t step = npk_step_rows(c, t->threads, VL), end = npk_min(c->n, (chunk + 1) * step);
    for (int64_t row = chunk * step; row < end; row += ISA(SOME) * VL) {
        const int64_t rows = npk_min(ISA(SOME) * VL, end - row);
        ISA(strip_sums)(sums, c, row / VL, (rows + VL - 1) / VL, x);
        for (int64_t i = 0; i < rows; i += VL) ISA(put)(c, 0, row + i, v_load(sums + i), npk_min(VL, rows - i));
    }
}

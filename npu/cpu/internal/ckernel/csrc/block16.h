// BF12 weights in 16-row blocks (npk.h), for the matrix unit: how they become right tiles, and GEMV
// of one row of activations.
//
// The matrix unit would read them no faster for one row and need a command before it that makes
// tiles of the activations. So vectors multiply that row, with the same results bit for bit: over
// the 16 pairs of a step, the products of first numbers and those of second numbers are added
// separately, then both together, and that to the sum. Subnormal numbers count as zero. Source:
// Intel's manual, volume 2, TDPBF16PS.

// A block while it is read, from front to back.
typedef struct ISA(block16) {
    const char *codes;
    const uint32_t *escape, *end; // those ahead
    int64_t until;                // next part with an escape
    vi bases;
    int zeros;
} ISA(block16);

// Parts of a step, and the bits of an escape below its part.
enum { ISA(STEP_PARTS) = ISA(STEP) / NPK_BLOCK16_COLUMNS, ISA(ESCAPE_PART) = 8 + 4 + 3 };

INLINE void ISA(block16_until)(ISA(block16) *q) {
    q->until = q->escape < q->end ? *q->escape >> ISA(ESCAPE_PART) : INT64_MAX;
}

// Starts reading block s of a matrix at a step.
INLINE ISA(block16) ISA(block16_at)(const npk_bf12 *w, int64_t s, int64_t k, int64_t step) {
    const npk_block16 *head = (const npk_block16 *)(w->codes + s * npk_block16_bytes(k));
    const uint32_t *escapes =
        npk_block16_has_room(head->count, k) ? head->here : w->escapes + head->escapes;
    ISA(block16)
    q = {(const char *)head + npk_block16_header(k),
         escapes,
         escapes + head->count,
         0,
         vi_none(),
         w->zeros != 0};
    const vi bases =
        _mm512_slli_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)head->bases)), 7);
    q.bases = vi_or(bases, vi_move(bases, 16));
    while (q.escape < q.end && *q.escape >> ISA(ESCAPE_PART) < step * ISA(STEP_PARTS)) q.escape++;
    ISA(block16_until)(&q);
    return q;
}

// Restores the exponents of a part's escapes.
INLINE void ISA(block16_patch)(ISA(block16) *q, vf w[4]) {
    const int64_t part = q->until;
    for (; q->until == part; q->escape++, ISA(block16_until)(q)) {
        const uint32_t e = *q->escape, half = (e >> 12 & 1) * 16;
        const vi exponent = vi_set1((int32_t)((e & 255) << 7 << half)),
                 mask = vi_set1(0x7f80 << half);
#pragma GCC unroll 4
        // sets the exponent's bits, where mask has ones, in one lane of one vector
        for (uint32_t i = 0; i < 4; i++)
            w[i] = vi_bits(_mm512_mask_ternarylogic_epi32(
                _mm512_castps_si512(w[i]),
                (__mmask16)((uint32_t)((e >> 13 & 3) == i) << (e >> 8 & 15)), exponent, mask,
                0xd8));
    }
}

// Decodes the columns of a part, as pairs of 16 rows.
INLINE void ISA(block16_read)(ISA(block16) *q, int64_t part, int zeros, vf w[4]) {
    const vi bases[4] = {q->bases, q->bases, q->bases, q->bases};
    ISA(bf12_read)(q->codes + part * NPK_BF12_UNIT, bases, zeros, w);
    if (__builtin_expect(part == q->until, 0)) ISA(block16_patch)(q, w);
}

// Decodes a step to a right tile. Zeros is a constant wherever this is inlined.
INLINE void ISA(tile_of_block16)(char *tile, ISA(block16) *q, int64_t step, const int zeros) {
#pragma GCC unroll 4
    for (int p = 0; p < ISA(STEP_PARTS); p++) {
        vf w[4];
        ISA(block16_read)(q, step * ISA(STEP_PARTS) + p, zeros, w);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) v_store((float *)(tile + (p * 4 + i) * 64), w[i]);
    }
}

TARGET static NOINLINE void ISA(tile_with_zeros)(char *tile, ISA(block16) *q, int64_t step) {
    ISA(tile_of_block16)(tile, q, step, 1);
}

INLINE void ISA(right_of_block16)(char *tile, ISA(block16) *q, int64_t step) {
    if (q->zeros) ISA(tile_with_zeros)(tile, q, step);
    else ISA(tile_of_block16)(tile, q, step, 0);
}

enum { ISA(SOME) = 16 }; // blocks whose sums are stored together

// Returns the prefetch distance in bytes. Short rows need more, because a block ends sooner.
INLINE int64_t ISA(far_ahead)(int64_t k) { return k < 2048 ? 8192 : 3072; }

// Returns the sums of a block times a row x. Zeros is a constant wherever this is inlined.
INLINE vf ISA(block16_times)(ISA(block16) q, const float *x, int64_t steps, const int zeros) {
    const char *ahead = q.codes + ISA(far_ahead)(steps * ISA(STEP));
    vf sum = v_zero();
    for (int64_t step = 0; step < steps; step++) {
        const float *a = x + step * ISA(STEP);
        vf even = v_zero(), odd = v_zero();
#pragma GCC unroll 4
        for (int p = 0; p < ISA(STEP_PARTS); p++) {
            const int64_t part = step * ISA(STEP_PARTS) + p;
            vf w[4];
            for (int i = 0; i < 3; i++)
                __builtin_prefetch(ahead + part * NPK_BF12_UNIT + i * 64, 0, 2);
            ISA(block16_read)(&q, part, zeros, w);
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
    return sum;
}

TARGET static NOINLINE vf ISA(block16_with_zeros)(const ISA(block16) *q, const float *x,
                                                  int64_t steps) {
    return ISA(block16_times)(*q, x, steps, 1);
}

// Computes the sums of blocks s to s + n - 1 times a row x.
TARGET static NOINLINE void ISA(block16_sums)(float *sums, const npk_cmd *c, int64_t s, int64_t n,
                                              const float *x) {
    const unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | _MM_FLUSH_ZERO_ON | 0x40); // 0x40: subnormal inputs count as zero
    COMPILER_BARRIER();
    const int64_t steps = c->k / ISA(STEP);
    for (; n > 0; n--, s++, sums += VL) {
        const ISA(block16) q = ISA(block16_at)(c->b, c->block + s, c->k, 0);
        // the header, which the block before has not prefetched
        for (int64_t i = npk_block16_header(c->k); i > 0; i -= 64)
            __builtin_prefetch(q.codes + ISA(far_ahead)(c->k) - i, 0, 2);
        v_store(sums, q.zeros ? ISA(block16_with_zeros)(&q, x, steps)
                              : ISA(block16_times)(q, x, steps, 0));
    }
    COMPILER_BARRIER();
    _mm_setcsr(mode);
}

TARGET static int64_t ISA(gemv_block16_scratch)(const npk_cmd *c) {
    return (c->k + ISA(SOME) *VL) * 4;
}

TARGET static int64_t ISA(gemv_block16_chunks)(const npk_cmd *c, int phase, int threads) {
    (void)phase;
    const int64_t step = npk_step_rows(c, threads, VL);
    return (c->n + step - 1) / step;
}

// One row of activations, which every thread converts to FP32 in its own scratch.
TARGET static void ISA(gemv_block16)(npk_thread *t, const npk_cmd *c, int phase, int64_t chunk) {
    (void)phase;
    float *x = (float *)t->scratch, *sums = x + c->k;
    const npk_cmd *p = t->prepared;
    if (!(p == c ||
          (p && p->kind == NPK_GEMV && p->table == c->table && p->a == c->a && p->k == c->k)))
        for (int64_t i = 0; i < c->k; i += VL) v_store(x + i, v_get(c->a, c->at, i));
    t->prepared = c;
    const int64_t step = npk_step_rows(c, t->threads, VL), end = npk_min(c->n, (chunk + 1) * step);
    for (int64_t row = chunk * step; row < end; row += ISA(SOME) *VL) {
        const int64_t rows = npk_min(ISA(SOME) *VL, end - row);
        ISA(block16_sums)(sums, c, row / VL, (rows + VL - 1) / VL, x);
        ISA(put_block)(c, 0, 1, row, rows, sums, 0);
    }
}

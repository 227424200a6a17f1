// How weights become tiles for products in the matrix unit (tiles_gemm.h): sixteen rows of them are a strip, and one or two strips over a block of K are a piece. BF16 is
// copied and BF12 put together, as left tiles; quantised weights become right tiles.
//
// A piece is made a step of K at a time, each a few steps before it is multiplied: the matrix unit works on while the vector units do this. And memory is asked for the
// piece behind it, as evenly. To make a whole piece and then to multiply it would leave the unit idle first, and then the memory.

typedef struct ISA(piece) {
    const npk_cmd *c;
    int64_t strip, strips; // the first, and one or two
    int64_t from, steps;   // of K
    int64_t made;          // steps that are tiles
    int limbs;             // numbers that make a weight
    char *tiles;           // [strips][steps][limbs]
    // In BF12:
    int64_t nquads; // of these strips; others that would belong to them are beyond b's last row
    int64_t until;  // the next step of K with an escape
    ISA(quad) quads[2 * NPK_TILE_ROWS / NPK_BF12_ROWS];
} ISA(piece);

// Where a tile of a strip lies.
INLINE char *ISA(piece_tile)(const ISA(piece) *p, int64_t strip, int64_t step) { return p->tiles + (strip * p->steps + step) * p->limbs * ISA(TILE); }

INLINE void ISA(find_escape)(ISA(piece) *p) {
    p->until = INT64_MAX;
    for (int64_t i = 0; i < p->nquads; i++) p->until = npk_min(p->until, ISA(quad_until)(&p->quads[i], INT64_MAX));
}

// Begins a piece. Where quads are missing, zeros stand for them in all steps.
INLINE void ISA(piece_begin)(ISA(piece) *p, const npk_cmd *c, int64_t strip, int64_t strips, int64_t from, int64_t steps, int limbs, char *tiles) {
    enum { QUADS = ISA(SIDE) / NPK_BF12_ROWS };
    p->c = c, p->strip = strip, p->strips = strips, p->from = from, p->steps = steps, p->made = 0, p->limbs = limbs, p->tiles = tiles;
    if (c->bt != NPK_BF12) return;
    p->nquads = npk_min(strips * QUADS, (c->n + NPK_BF12_ROWS - 1) / NPK_BF12_ROWS - strip * QUADS);
    for (int64_t i = 0; i < p->nquads; i++) p->quads[i] = ISA(quad_at)(c->b, c->p[0] + strip * QUADS + i, c->k, from);
    for (int64_t i = p->nquads; i < strips * QUADS; i++)
        for (int64_t s = 0; s < steps; s++) memset(ISA(piece_tile)(p, i / QUADS, s) + i % QUADS * NPK_BF12_ROWS * 64, 0, NPK_BF12_ROWS * 64);
    ISA(find_escape)(p);
}

// A step of sixteen rows from row on as a left tile; what b does not have is zeros.
INLINE void ISA(left_of_rows)(char *dst, const npk_cmd *c, int64_t row, int64_t step) {
    const int64_t stride = c->ldb * 2, bytes = npk_min(64, c->k * 2 - step * 64), rows = npk_min(ISA(SIDE), c->n - row);
    const __mmask64 mask = ~(__mmask64)0 >> (64 - bytes);
    const char *src = (const char *)c->b + row * stride + step * 64;
    for (int64_t r = 0; r < rows; r++) _mm512_storeu_si512(dst + r * 64, _mm512_maskz_loadu_epi8(mask, src + r * stride));
    if (rows < ISA(SIDE)) memset(dst + rows * 64, 0, (size_t)(ISA(SIDE) - rows) * 64);
}

// A step of a quad as four rows of a left tile. Escapes are anything.
INLINE void ISA(left_of_quad)(char *dst, const ISA(quad) *q, int64_t unit) {
    vf w[NPK_BF12_ROWS];
    ISA(quad_read)(q, unit, w);
#pragma GCC unroll 4
    for (int r = 0; r < NPK_BF12_ROWS; r++) v_store((float *)(dst + r * 64), w[r]);
}

// A step of the quads of a piece as left tiles.
INLINE void ISA(left_of_quads)(ISA(piece) *p, int64_t s) {
    enum { QUADS = ISA(SIDE) / NPK_BF12_ROWS };
    _Static_assert(ISA(PARTS) == 1, "a step of K is a unit of a quad, and a vector");
    const int64_t unit = p->from + s;
    for (int64_t strip = 0; strip < p->strips; strip++) {
        char *to = ISA(piece_tile)(p, strip, s);
        const int64_t first = strip * QUADS, n = npk_min(QUADS, p->nquads - first);
        if (n == QUADS) {
#pragma GCC unroll 4
            for (int i = 0; i < QUADS; i++) ISA(left_of_quad)(to + i * NPK_BF12_ROWS * 64, &p->quads[first + i], unit);
        } else {
            for (int i = 0; i < n; i++) ISA(left_of_quad)(to + i * NPK_BF12_ROWS * 64, &p->quads[first + i], unit);
        }
    }
    if (unit < p->until) return;
    for (int64_t i = 0; i < p->nquads; i++)
        for (ISA(quad) *q = &p->quads[i]; ISA(quad_until)(q, INT64_MAX) == unit; q->escape++) {
            const uint32_t e = *q->escape;
            uint16_t *rows = (uint16_t *)ISA(piece_tile)(p, i / QUADS, s) + i % QUADS * NPK_BF12_ROWS * NPK_BF12_COLUMNS;
            rows[(e >> 21 & 3) * NPK_BF12_COLUMNS + (e >> 16 & 31)] = (uint16_t)e;
        }
    ISA(find_escape)(p);
}

// A step of a group of quantised weights as a right tile, or two of them.
INLINE void ISA(right_of)(const int type, const int limbs, char *dst, const npk_cmd *c, int64_t group, int64_t step) {
    const ISA(form) f = ISA(form_of)(type);
    const char *g = (const char *)c->b + group * ISA(group_bytes)(f, c->k), *unit = g + ISA(scale_bytes)(f, c->k) + step * f.words * 64;
    vf scale[2], minimum[2];
    for (int h = 0; h < 2; h++) {
        ISA(factors)(f, g, 2 * step + h, 0, &scale[h], &minimum[h]);
        minimum[h] = v_sub(minimum[h], v_mul(scale[h], v_set1((float)f.bias)));
    }
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) {
        vf x[4];
        ISA(four)(f, unit, 0, j, scale[j / 4], minimum[j / 4], x);
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) { // a pair
            char *to = dst + (2 * j + i) * 64;
            if (limbs == 1) v_store((float *)to, v_pair(x[2 * i], x[2 * i + 1]));
            else v_cut((float *)to, (float *)(to + ISA(TILE)), x[2 * i], x[2 * i + 1]);
        }
    }
}

TARGET static void ISA(right_of_group)(char *dst, const npk_cmd *c, int64_t group, int64_t step, int limbs) {
    switch (c->bt) {
#define RIGHT(type)                                                                                                                       \
    case type:                                                                                                                            \
        if (limbs == 1) ISA(right_of)(type, 1, dst, c, group, step);                                                                       \
        else ISA(right_of)(type, 2, dst, c, group, step);                                                                                  \
        break;
        EACH_GROUPED(RIGHT)
#undef RIGHT
    }
}

// Makes the next step of a piece, if there is one.
TARGET static void ISA(make_step)(ISA(piece) *p) {
    if (p->made == p->steps) return;
    const int64_t s = p->made++;
    if (p->c->bt == NPK_BF12) {
        ISA(left_of_quads)(p, s);
        return;
    }
    for (int64_t i = 0; i < p->strips; i++) {
        char *dst = ISA(piece_tile)(p, i, s);
        if (p->c->bt >= NPK_Q8_0) ISA(right_of_group)(dst, p->c, p->strip + i, p->from + s, p->limbs);
        else ISA(left_of_rows)(dst, p->c, (p->strip + i) * ISA(SIDE), p->from + s);
    }
}

// Where the weights of a piece lie: so many stretches, and in each of them so many cache lines for a step.
typedef struct ISA(ahead) {
    const char *at;
    int64_t stretch, step; // bytes to the next
    int64_t stretches;
    int lines;
} ISA(ahead);

// Share part of parts of what a piece will read, but for the scales of quants.
INLINE ISA(ahead) ISA(ahead_of)(const ISA(piece) *p, int64_t part, int64_t parts) {
    const npk_cmd *c = p->c;
    const int64_t strip = p->strip, strips = p->strips;
    ISA(ahead) a;
    const char *b = (const char *)c->b;
    int64_t first;
    if (c->bt >= NPK_Q8_0) {
        const ISA(form) f = ISA(form_of)(c->bt);
        a = (ISA(ahead)){b + ISA(scale_bytes)(f, c->k), ISA(group_bytes)(f, c->k), f.words * 64, strips, f.words}, first = strip;
    } else if (c->bt == NPK_BF12) {
        const int64_t quads = (c->n + NPK_BF12_ROWS - 1) / NPK_BF12_ROWS;
        first = strip * ISA(SIDE) / NPK_BF12_ROWS;
        const char *codes = (const char *)((const npk_bf12 *)c->b)->codes + c->p[0] * npk_quad_bytes(c->k);
        a = (ISA(ahead)){codes, npk_quad_bytes(c->k), NPK_BF12_UNIT, npk_min(strips * ISA(SIDE) / NPK_BF12_ROWS, quads - first), NPK_BF12_UNIT / 64};
    } else {
        first = strip * ISA(SIDE);
        a = (ISA(ahead)){b, c->ldb * 2, 64, npk_min(strips * ISA(SIDE), c->n - first), 1};
    }
    const int64_t begin = a.stretches * part / parts, end = a.stretches * (part + 1) / parts;
    a.at += (first + begin) * a.stretch + p->from * a.step, a.stretches = end - begin;
    return a;
}

INLINE void ISA(ask)(const ISA(ahead) *a, int64_t step) {
    for (int64_t i = 0; i < a->stretches; i++) {
        const char *at = a->at + i * a->stretch + step * a->step;
        for (int j = 0; j < a->lines; j++) __builtin_prefetch(at + j * 64, 0, 2);
    }
}

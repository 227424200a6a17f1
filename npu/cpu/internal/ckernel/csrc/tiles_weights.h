// Conversion of weights to tiles for products in the matrix unit (tiles_gemm.h). One or two column
// tiles over a block of K are a panel. BF16 is copied to left tiles; BF12 and quantized weights are
// decoded to right tiles.
//
// A panel is converted a step of K at a time, each a few steps before it is multiplied, so that
// vector units and matrix unit work at the same time. Memory for the next panel is prefetched at
// the same pace. Converting a whole panel first would leave the matrix unit idle, then the memory.

// A panel that is multiplied once has tiles for so many steps at a time, which stay in L1: more
// than LAG, and a power of two.
enum { ISA(RING) = 8 };

typedef struct ISA(panel) {
    const npk_cmd *c;
    int64_t ctile, ctiles; // the first, and one or two
    int64_t from, steps;   // of K
    int64_t made;          // steps that are converted
    int terms;             // BF16 numbers whose sum is a weight
    char *tiles;           // [ctiles][room][terms]
    // steps that there is room for, and the mask of a step's position among them
    int64_t room, mask;
    ISA(block16) bf12[2]; // the column tiles, if they are BF12
} ISA(panel);

// Returns the address of a tile.
INLINE char *ISA(panel_tile)(const ISA(panel) *p, int64_t ctile, int64_t step) {
    return p->tiles + (ctile * p->room + (step & p->mask)) * p->terms * ISA(TILE);
}

INLINE void ISA(panel_begin)(ISA(panel) *p, const npk_cmd *c, int64_t ctile, int64_t ctiles,
                             int64_t from, int64_t steps, int terms, int once, char *tiles) {
    p->c = c, p->ctile = ctile, p->ctiles = ctiles, p->from = from, p->steps = steps, p->made = 0,
    p->terms = terms, p->tiles = tiles;
    const int ring = once && steps > ISA(RING);
    p->room = ring ? ISA(RING) : steps, p->mask = ring ? ISA(RING) - 1 : -1;
    for (int64_t i = 0; c->bt == NPK_BF12X16 && i < ctiles; i++)
        p->bf12[i] = ISA(block16_at)(c->b, c->block + ctile + i, c->k, from);
}

// Copies a step of 16 rows from row on to a left tile, padded with zeros.
INLINE void ISA(left_of_rows)(char *dst, const npk_cmd *c, int64_t row, int64_t step) {
    const int64_t stride = c->ldb * 2, bytes = npk_min(64, c->k * 2 - step * 64),
                  rows = npk_min(ISA(SIDE), c->n - row);
    const __mmask64 mask = ~(__mmask64)0 >> (64 - bytes);
    const char *src = (const char *)c->b + row * stride + step * 64;
    for (int64_t r = 0; r < rows; r++)
        _mm512_storeu_si512(dst + r * 64, _mm512_maskz_loadu_epi8(mask, src + r * stride));
    if (rows < ISA(SIDE)) memset(dst + rows * 64, 0, (size_t)(ISA(SIDE) - rows) * 64);
}

// Decodes a step of a group to a right tile, or to two of them.
INLINE void ISA(right_of)(const int type, const int terms, char *dst, const npk_cmd *c,
                          int64_t group, int64_t step) {
    const ISA(form) f = ISA(form_of)(type);
    const char *g = (const char *)c->b + group * ISA(group_bytes)(f, c->k),
               *unit = g + ISA(scale_bytes)(f, c->k) + step * f.words * 64;
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
            if (terms == 1) v_store((float *)to, v_pair(x[2 * i], x[2 * i + 1]));
            else v_terms((float *)to, (float *)(to + ISA(TILE)), x[2 * i], x[2 * i + 1]);
        }
    }
}

TARGET static void ISA(right_of_group)(char *dst, const npk_cmd *c, int64_t group, int64_t step,
                                       int terms) {
    switch (c->bt) {
#define RIGHT(type)                                                                                \
    case type:                                                                                     \
        if (terms == 1) ISA(right_of)(type, 1, dst, c, group, step);                               \
        else ISA(right_of)(type, 2, dst, c, group, step);                                          \
        break;
        EACH_GROUPED(RIGHT)
#undef RIGHT
    }
}

// Converts the next step of a panel, if there is one.
TARGET static void ISA(make_step)(ISA(panel) *p) {
    if (p->made == p->steps) return;
    const int64_t s = p->made++;
    for (int64_t i = 0; i < p->ctiles; i++) {
        char *dst = ISA(panel_tile)(p, i, s);
        if (p->c->bt == NPK_BF12X16) ISA(right_of_block16)(dst, &p->bf12[i], p->from + s);
        else if (p->c->bt >= NPK_Q8_0)
            ISA(right_of_group)(dst, p->c, p->ctile + i, p->from + s, p->terms);
        else ISA(left_of_rows)(dst, p->c, (p->ctile + i) * ISA(SIDE), p->from + s);
    }
}

// Memory to prefetch during a product: runs of cache lines, from front to back.
typedef struct ISA(ahead) {
    const char *at;
    int64_t left, each;   // lines to come, and lines per step
    int64_t line, length; // position in a run, and its length
    int64_t skip;         // bytes from the end of a run to the next one
} ISA(ahead);

// Returns share part (of parts) of a panel's weights, without the scales of quantized weights, to
// be prefetched in the given number of steps.
INLINE ISA(ahead)
    ISA(prefetch_of)(const ISA(panel) *p, int64_t part, int64_t parts, int64_t steps) {
    const npk_cmd *c = p->c;
    const char *at = c->b;
    int64_t stretches = p->ctiles, distance, lines = 1; // from run to run; of a step
    if (c->bt >= NPK_Q8_0) {
        const ISA(form) f = ISA(form_of)(c->bt);
        distance = ISA(group_bytes)(f, c->k), lines = f.words;
        at += p->ctile * distance + ISA(scale_bytes)(f, c->k);
    } else if (c->bt == NPK_BF12X16) {
        distance = npk_block16_bytes(c->k),
        lines = ISA(STEP) / NPK_BLOCK16_COLUMNS * NPK_BF12_UNIT / 64;
        at = (const char *)((const npk_bf12 *)c->b)->codes + (c->block + p->ctile) * distance +
             npk_block16_header(c->k);
    } else {
        stretches = npk_min(stretches * ISA(SIDE), c->n - p->ctile * ISA(SIDE)),
        distance = c->ldb * 2;
        at += p->ctile * ISA(SIDE) * distance;
    }
    const int64_t length = p->steps * lines, all = stretches * length, first = all * part / parts,
                  left = all * (part + 1) / parts - first;
    at += p->from * lines * 64 + first / length * distance + first % length * 64;
    return (ISA(ahead)){
        at, left, (left + steps - 1) / steps, first % length, length, distance - length * 64};
}

INLINE void ISA(prefetch_step)(ISA(ahead) *a) {
    const int64_t n = npk_min(a->each, a->left);
    for (int64_t i = 0; i < n; i++, a->at += 64) {
        __builtin_prefetch(a->at, 0, 2);
        if (++a->line == a->length) a->line = 0, a->at += a->skip;
    }
    a->left -= n;
}

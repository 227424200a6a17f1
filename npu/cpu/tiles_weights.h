// How weights become tiles for products in the matrix unit (tiles_gemm.h): sixteen rows of them are a strip, and two strips over a block of K are a piece, small enough to
// stay in the nearest cache. BF16 is copied and BF12 put together, as left tiles; quantised weights become right tiles.
//
// While one piece is multiplied the next one is made, a portion between every few products: the matrix unit works on while the vector units do
// this. And memory is asked for the piece behind that one, portion by portion too. All at once would take as long as reading it.

enum { ISA(PORTIONS) = 16 }; // of a piece, the first half of the first strip

typedef struct ISA(piece) {
    int64_t strip, strips; // the first, and one or two
    int64_t from, steps;   // of K
} ISA(piece);

// Steps from.. of a group of quantised weights as right tiles, of one or two numbers each.
INLINE void ISA(right_of)(const int type, const int limbs, char *dst, const npk_cmd *c, int64_t group, int64_t from, int64_t steps) {
    const ISA(form) f = ISA(form_of)(type);
    const char *g = (const char *)c->b + group * ISA(group_bytes)(f, c->k), *unit = g + ISA(scale_bytes)(f, c->k) + from * f.words * 64;
    const vf bias = v_set1((float)f.bias);
    for (int64_t s = from; s < from + steps; s++, unit += f.words * 64, dst += limbs * ISA(TILE)) {
        vf scale[2], minimum[2];
        for (int h = 0; h < 2; h++) {
            ISA(factors)(f, g, 2 * s + h, 0, &scale[h], &minimum[h]);
            minimum[h] = v_sub(minimum[h], v_mul(scale[h], bias));
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
}

TARGET static void ISA(right_tiles)(char *dst, const npk_cmd *c, int64_t group, int64_t from, int64_t steps, int limbs) {
    switch (c->bt) {
#define RIGHT(type)                                                                                                                       \
    case type:                                                                                                                            \
        if (limbs == 1) ISA(right_of)(type, 1, dst, c, group, from, steps);                                                                \
        else ISA(right_of)(type, 2, dst, c, group, from, steps);                                                                           \
        break;
        EACH_GROUPED(RIGHT)
#undef RIGHT
    }
}

// Steps from.. of a quad of b as four rows of left tiles, while memory is asked for as many that begin at ahead.
TARGET static void ISA(quad_to_tiles)(char *dst, const npk_cmd *c, int64_t quad, int64_t from, int64_t steps, const char *ahead) {
    ISA(quad) q = ISA(quad_at)(c->b, c->p[0] + quad, c->k, from);
    EACH_PART(q, from, from + steps, {
        char *to = dst + (part - from) * ISA(TILE);
        for (int i = 0; i < NPK_BF12_UNIT; i += 64) __builtin_prefetch(ahead + (part - from) * NPK_BF12_UNIT + i, 0, 2);
        for (int r = 0; r < NPK_BF12_ROWS; r++) v_store((float *)(to + r * 64), w[r]);
    })
}

INLINE const char *ISA(quad_codes)(const npk_cmd *c, int64_t quad, int64_t from) {
    return (const char *)((const npk_bf12 *)c->b)->codes + (c->p[0] + quad) * npk_quad_bytes(c->k) + from * NPK_BF12_UNIT;
}

// Rows row.. of a strip, as many as rows, as rows of left tiles. What b does not have is zeros.
INLINE void ISA(copy_portion)(char *dst, const npk_cmd *c, const ISA(piece) *p, int64_t row, int rows, const char *ahead) {
    const int64_t stride = c->ldb * 2, bytes = npk_min(p->steps * 64, (c->k - p->from * ISA(STEP)) * 2);
    for (int r = 0; r < rows; r++, row++, dst += 64) {
        const char *src = (const char *)c->b + row * stride + p->from * 64;
        const int64_t whole = row < c->n ? bytes / 64 : 0;
        for (int64_t s = 0; s < whole; s++) {
            __builtin_prefetch(ahead + r * stride + s * 64, 0, 2);
            _mm512_storeu_si512(dst + s * ISA(TILE), _mm512_loadu_si512(src + s * 64));
        }
        for (int64_t s = whole; s < p->steps; s++) {
            memset(dst + s * ISA(TILE), 0, 64);
            if (row < c->n) memcpy(dst + s * ISA(TILE), src + s * 64, (size_t)npk_max(0, npk_min(64, bytes - s * 64)));
        }
    }
}

// One portion of a piece goes to dst, and memory is asked for the same portion of another.
TARGET static void ISA(portion)(char *dst, const npk_cmd *c, const ISA(piece) *p, const ISA(piece) *then, int i, int limbs) {
    enum { HALF = ISA(PORTIONS) / 2 };
    const int64_t part = i % HALF, strip = p->strip + i / HALF, other = npk_min(then->strip + i / HALF, (c->n - 1) / ISA(SIDE));
    if (i / HALF >= p->strips) return;
    dst += i / HALF * limbs * p->steps * ISA(TILE);
    if (c->bt >= NPK_Q8_0) {
        const int64_t begin = p->steps * part / HALF, end = p->steps * (part + 1) / HALF;
        ISA(right_tiles)(dst + begin * limbs * ISA(TILE), c, strip, p->from + begin, end - begin, limbs);
    } else if (c->bt == NPK_BF12) {
        const int64_t at = part / 2, quads = (c->n + NPK_BF12_ROWS - 1) / NPK_BF12_ROWS, quad = strip * 4 + at, half = p->steps / 2;
        const int64_t begin = part % 2 ? half : 0, steps = part % 2 ? p->steps - half : half;
        const char *ahead = ISA(quad_codes)(c, npk_min(other * 4 + at, quads - 1), then->from + begin);
        if (quad < quads) ISA(quad_to_tiles)(dst + begin * ISA(TILE) + at * NPK_BF12_ROWS * 64, c, quad, p->from + begin, steps, ahead);
        else for (int64_t s = 0; s < steps; s++) memset(dst + (begin + s) * ISA(TILE) + at * NPK_BF12_ROWS * 64, 0, NPK_BF12_ROWS * 64);
    } else {
        const int rows = ISA(SIDE) / HALF;
        const char *ahead = (const char *)c->b + (other * ISA(SIDE) + part * rows) * c->ldb * 2 + then->from * 64;
        ISA(copy_portion)(dst + part * rows * 64, c, p, strip * ISA(SIDE) + part * rows, rows, ahead);
    }
}

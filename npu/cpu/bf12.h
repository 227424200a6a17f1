// Weights in BF12 (npk.h): how kernels read them. What comes out are the very numbers of the BF16 that went in, in three quarters of the bytes.

// Columns are read a vector of pairs at a time.
enum { ISA(PART) = 2 * VL, ISA(PARTS) = NPK_BF12_COLUMNS / ISA(PART) };

// A quad while it is read, from front to back.
typedef struct ISA(quad) {
    const char *codes;
    const uint32_t *escape, *end; // that have not been met
    vi bases[NPK_BF12_ROWS];
    int zeros;
} ISA(quad);

// Quad q of a matrix, from a unit of it on.
INLINE ISA(quad) ISA(quad_at)(const npk_bf12 *w, int64_t q, int64_t k, int64_t unit) {
    const npk_quad *head = w->heads + q;
    ISA(quad) at = {(const char *)w->codes + q * npk_quad_bytes(k), w->escapes + head[0].escapes, w->escapes + head[1].escapes, {vi_none()}, w->zeros != 0};
    for (int r = 0; r < NPK_BF12_ROWS; r++) at.bases[r] = vi_set1(head->bases[r] << 7 | head->bases[r] << 23);
    while (at.escape < at.end && *at.escape >> 23 < unit) at.escape++;
    return at;
}

// The next unit that has an escape, or units.
INLINE int64_t ISA(quad_until)(const ISA(quad) *q, int64_t units) { return q->escape < q->end ? npk_min(units, *q->escape >> 23) : units; }

// A vector of each of four numbers, as pairs, from three words that lie 64 bytes apart.
INLINE void ISA(bf12_read)(const char *from, const vi bases[4], int zeros, vf w[4]) {
    vi x[3], y[4];
#pragma GCC unroll 3
    for (int i = 0; i < 3; i++) {
        x[i] = vi_load(from + i * (NPK_BF12_UNIT / 3));
        y[i] = vi_and(x[i], 0x87ff87ff);
    }
    const vi high = vi_or(vi_and(vi_move(x[0], 1), 0x80008000), vi_and(vi_shr(x[1], 4), 0x07800780));
    const vi low = vi_or(vi_and(vi_shr(x[2], 8), 0x00780078), vi_and(vi_shr(x[0], 11), 0x00070007));
    y[3] = vi_or(high, low);
    if (zeros) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) w[i] = vi_bits(vi_based(y[i], bases[i]));
    } else {
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) w[i] = vi_bits(vi_add(y[i], bases[i]));
    }
}

// Part p of a quad: so many columns of each row, as pairs. Escapes are anything.
INLINE void ISA(quad_read)(const ISA(quad) *q, int64_t p, vf w[NPK_BF12_ROWS]) {
    ISA(bf12_read)(q->codes + p / ISA(PARTS) * NPK_BF12_UNIT + p % ISA(PARTS) * 4 * VL, q->bases, q->zeros, w);
}

// The parts of a unit that has escapes.
TARGET static __attribute__((noinline, unused)) void ISA(quad_patch)(ISA(quad) *q, int64_t unit, vf w[ISA(PARTS)][NPK_BF12_ROWS]) {
    uint16_t values[NPK_BF12_ROWS][NPK_BF12_COLUMNS];
    for (int p = 0; p < ISA(PARTS); p++) {
        ISA(quad_read)(q, unit * ISA(PARTS) + p, w[p]);
        for (int r = 0; r < NPK_BF12_ROWS; r++) v_store((float *)(values[r] + p * ISA(PART)), w[p][r]);
    }
    for (; q->escape < q->end && *q->escape >> 23 == unit; q->escape++) values[*q->escape >> 21 & 3][*q->escape >> 16 & 31] = (uint16_t)*q->escape;
    for (int p = 0; p < ISA(PARTS); p++)
        for (int r = 0; r < NPK_BF12_ROWS; r++) w[p][r] = v_load((const float *)(values[r] + p * ISA(PART)));
}

// Calls BODY, which uses part, its number, and w, its rows, for units FIRST to END-1 of a quad.
#define EACH_PART(Q, FIRST, END, BODY)                                                                                                    \
    for (int64_t unit_ = (FIRST), units_ = (END); unit_ < units_;) {                                                                      \
        const int64_t until_ = ISA(quad_until)(&(Q), units_);                                                                             \
        for (int64_t part = unit_ * ISA(PARTS); part < until_ * ISA(PARTS); part++) {                                                     \
            vf w[NPK_BF12_ROWS];                                                                                                          \
            ISA(quad_read)(&(Q), part, w);                                                                                                \
            BODY                                                                                                                          \
        }                                                                                                                                 \
        unit_ = until_;                                                                                                                   \
        if (unit_ < units_) { /* a copy, so that what the loop above uses stays in registers */                                           \
            ISA(quad) copy_ = Q;                                                                                                          \
            vf patched_[ISA(PARTS)][NPK_BF12_ROWS];                                                                                       \
            ISA(quad_patch)(&copy_, unit_, patched_);                                                                                     \
            Q.escape = copy_.escape;                                                                                                      \
            for (int p_ = 0; p_ < ISA(PARTS); p_++) {                                                                                     \
                const int64_t part = unit_ * ISA(PARTS) + p_;                                                                             \
                vf w[NPK_BF12_ROWS];                                                                                                      \
                for (int r_ = 0; r_ < NPK_BF12_ROWS; r_++) w[r_] = patched_[p_][r_];                                                      \
                BODY                                                                                                                      \
            }                                                                                                                             \
            unit_++;                                                                                                                      \
        }                                                                                                                                 \
    }

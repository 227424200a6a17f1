// Weights in BF12 (npk.h): how kernels read them. The result is the BF16 that was compressed, bit
// for bit, from three quarters of the bytes.

// Columns are read a vector of pairs at a time.
enum { ISA(PART) = 2 * VL, ISA(PARTS) = NPK_BLOCK4_COLUMNS / ISA(PART) };

// A 4-row block while it is read, from front to back.
typedef struct ISA(block4) {
    const char *codes;
    const uint32_t *escape, *end; // those ahead
    vi bases[NPK_BLOCK4_ROWS];
    int zeros;
} ISA(block4);

// Starts reading block q of a matrix at one of its units.
INLINE ISA(block4) ISA(block4_at)(const npk_bf12 *w, int64_t q, int64_t k, int64_t unit) {
    const npk_block4 *head = w->heads + q;
    ISA(block4)
    at = {
        (const char *)w->codes + q * npk_block4_bytes(k),
        w->escapes + head[0].escapes,
        w->escapes + head[1].escapes,
        {vi_none()},
        w->zeros != 0,
    };
    for (int r = 0; r < NPK_BLOCK4_ROWS; r++)
        at.bases[r] = vi_set1(head->bases[r] << 7 | head->bases[r] << 23);
    while (at.escape < at.end && *at.escape >> 23 < unit) at.escape++;
    return at;
}

// Returns the next unit that has an escape, or units if there is none.
INLINE int64_t ISA(block4_until)(const ISA(block4) *q, int64_t units) {
    return q->escape < q->end ? npk_min(units, *q->escape >> 23) : units;
}

// Decodes a vector of each of four numbers, as pairs, from three words that are 64 bytes apart.
INLINE void ISA(bf12_read)(const char *from, const vi bases[4], int zeros, vf w[4]) {
    vi x[3], y[4];
#pragma GCC unroll 3
    for (int i = 0; i < 3; i++) {
        x[i] = vi_load(from + i * (NPK_BF12_UNIT / 3));
        y[i] = vi_and(x[i], 0x87ff87ff);
    }
    const vi high =
        vi_or(vi_and(vi_move(x[0], 1), 0x80008000), vi_and(vi_shr(x[1], 4), 0x07800780));
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

// Decodes part p of a block: columns of each row, as pairs. Escapes are undefined.
INLINE void ISA(block4_read)(const ISA(block4) *q, int64_t p, vf w[NPK_BLOCK4_ROWS]) {
    const int64_t at = p / ISA(PARTS) * NPK_BF12_UNIT + p % ISA(PARTS) * 4 * VL;
    ISA(bf12_read)(q->codes + at, q->bases, q->zeros, w);
}

// Decodes the parts of a unit that has escapes.
TARGET static NOINLINE void ISA(block4_patch)(ISA(block4) *q, int64_t unit,
                                              vf w[ISA(PARTS)][NPK_BLOCK4_ROWS]) {
    uint16_t values[NPK_BLOCK4_ROWS][NPK_BLOCK4_COLUMNS];
    for (int p = 0; p < ISA(PARTS); p++) {
        ISA(block4_read)(q, unit * ISA(PARTS) + p, w[p]);
        for (int r = 0; r < NPK_BLOCK4_ROWS; r++)
            v_store((float *)(values[r] + p * ISA(PART)), w[p][r]);
    }
    for (; q->escape < q->end && *q->escape >> 23 == unit; q->escape++)
        values[*q->escape >> 21 & 3][*q->escape >> 16 & 31] = (uint16_t)*q->escape;
    for (int p = 0; p < ISA(PARTS); p++)
        for (int r = 0; r < NPK_BLOCK4_ROWS; r++)
            w[p][r] = v_load((const float *)(values[r] + p * ISA(PART)));
}

// Runs BODY, which uses part, its number, and w, its rows, for units FIRST to END-1 of a block.
// Patching uses a copy of the reader, so that the reader itself stays in registers.
#define EACH_PART(Q, FIRST, END, BODY)                                                             \
    for (int64_t unit_ = (FIRST), units_ = (END); unit_ < units_;) {                               \
        const int64_t until_ = ISA(block4_until)(&(Q), units_);                                    \
        for (int64_t part = unit_ * ISA(PARTS); part < until_ * ISA(PARTS); part++) {              \
            vf w[NPK_BLOCK4_ROWS];                                                                 \
            ISA(block4_read)(&(Q), part, w);                                                       \
            BODY                                                                                   \
        }                                                                                          \
        unit_ = until_;                                                                            \
        if (unit_ < units_) {                                                                      \
            ISA(block4) copy_ = Q;                                                                 \
            vf patched_[ISA(PARTS)][NPK_BLOCK4_ROWS];                                              \
            ISA(block4_patch)(&copy_, unit_, patched_);                                            \
            Q.escape = copy_.escape;                                                               \
            for (int p_ = 0; p_ < ISA(PARTS); p_++) {                                              \
                const int64_t part = unit_ * ISA(PARTS) + p_;                                      \
                vf w[NPK_BLOCK4_ROWS];                                                             \
                for (int r_ = 0; r_ < NPK_BLOCK4_ROWS; r_++) w[r_] = patched_[p_][r_];             \
                BODY                                                                               \
            }                                                                                      \
            unit_++;                                                                               \
        }                                                                                          \
    }

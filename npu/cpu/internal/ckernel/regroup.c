//go:build cgo && !windows && (amd64 || arm64)

// Repacks quantized weights from the order of a file into groups.
//
// A file stores row after row, a group one word of 16 rows after another. So a block of all rows is
// read at once and transposed; everything else is the same for every row: shifts and masks of
// vectors of rows. Vectors of 128 bits, which every machine with these kernels has, are as fast as
// memory.

#include "regroup.h"

#include <string.h>

#include "csrc/npk.h"

enum { LANES = 16, BLOCK_BYTES = 210 }; // rows of a group; bytes of the largest block

typedef uint32_t lanes[LANES]; // one word of every row
typedef uint32_t quad __attribute__((vector_size(16)));

static inline quad load(const void *p) {
    quad q;
    memcpy(&q, p, sizeof q);
    return q;
}

static inline void store(uint32_t *p, quad q) { memcpy(p, &q, sizeof q); }

// PICK makes a vector of four words of two vectors.
#ifdef __clang__
#define PICK(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define PICK(a, b, i, j, k, l) __builtin_shuffle(a, b, (quad){i, j, k, l})
#endif

// turn transposes n words of every row, a multiple of four, from a byte of the rows' blocks on.
static inline void turn(lanes *to, const uint8_t *const *block, int at, int n) {
    for (int w = 0; w < n; w += 4) {
        for (int r = 0; r < LANES; r += 4) {
            quad a = load(block[r] + at + 4 * w), b = load(block[r + 1] + at + 4 * w);
            quad c = load(block[r + 2] + at + 4 * w), d = load(block[r + 3] + at + 4 * w);
            quad ab = PICK(a, b, 0, 4, 1, 5), cd = PICK(c, d, 0, 4, 1, 5);
            store(to[w] + r, PICK(ab, cd, 0, 1, 4, 5));
            store(to[w + 1] + r, PICK(ab, cd, 2, 3, 6, 7));
            ab = PICK(a, b, 2, 6, 3, 7), cd = PICK(c, d, 2, 6, 3, 7);
            store(to[w + 2] + r, PICK(ab, cd, 0, 1, 4, 5));
            store(to[w + 3] + r, PICK(ab, cd, 2, 3, 6, 7));
        }
    }
}

// word reads one word of every row.
static inline void word(uint32_t *to, const uint8_t *const *block, int at) {
    for (int r = 0; r < LANES; r++) memcpy(to + r, block[r] + at, 4);
}

// half reads 16 bits of every row.
static inline void half(uint8_t *to, const uint8_t *const *block, int at) {
    for (int r = 0; r < LANES; r++) memcpy(to + 2 * r, block[r] + at, 2);
}

// bytes stores each byte of a word of every row, the second `apart` bytes after the first.
static inline void bytes(uint8_t *to, int apart, const uint32_t *from) {
    for (int b = 0; b < 4; b++) {
        for (int r = 0; r < LANES; r++) to[b * apart + r] = (uint8_t)(from[r] >> 8 * b);
    }
}

// exchange swaps the bits of a under mask << shift with those of b under mask.
//
// Write the position of a bit as a number, whose bits are those of its position in a word and those
// of the word's index: this swaps one of the former, worth shift, with one of the latter, the one
// in which a and b differ. A few such steps turn the number of an element in a file into its
// position in a group, for all bits of a word at once.
static inline void exchange(uint32_t *a, uint32_t *b, int shift, uint32_t mask) {
    for (int r = 0; r < LANES; r += 4) {
        quad x = load(a + r), y = load(b + r), t = ((x >> shift) ^ y) & mask;
        store(a + r, x ^ (t << shift));
        store(b + r, y ^ t);
    }
}

// within swaps two bits of the position in one word, whose difference is shift.
static inline void within(uint32_t *a, int shift, uint32_t mask) {
    for (int r = 0; r < LANES; r += 4) {
        quad x = load(a + r), t = ((x >> shift) ^ x) & mask;
        store(a + r, x ^ t ^ (t << shift));
    }
}

// nibbles reads two times 32 quants of 4 bits, whose halves of bytes are 32 elements apart in a
// file and 16 in a group.
static inline void nibbles(lanes *low, lanes *high, const uint8_t *const *block, int at) {
    turn(low, block, at, 4);
    turn(high, block, at + 16, 4);
    for (int j = 0; j < 4; j++) exchange(low[j], high[j], 4, 0x0f0f0f0f);
}

// fifths moves fifth bits, bit e that of element e, to their positions: e's bits 4 3 2 1 0 become 1
// 3 2 0 4.
static inline void fifths(uint32_t *to, const uint8_t *const *block, int at) {
    word(to, block, at);
    within(to, 16 - 1, 0x0000aaaa);
    within(to, 16 - 2, 0x0000cccc);
}

static void put_q8_0(const uint8_t *const *block, uint8_t *scales, lanes *q) {
    half(scales, block, 0);
    turn(q, block, 2, 8);
    for (int w = 0; w < 8; w++) {
        for (int r = 0; r < LANES; r += 4) store(q[w] + r, load(q[w] + r) ^ 0x80808080);
    }
}

static void put_q4_0(const uint8_t *const *block, uint8_t *scales, lanes *q) {
    half(scales, block, 0);
    turn(q, block, 2, 4);
}

static void put_q5_0(const uint8_t *const *block, uint8_t *scales, lanes *q) {
    half(scales, block, 0);
    fifths(q[4], block, 2);
    turn(q, block, 6, 4);
}

static void put_q4_1(const uint8_t *const *block, uint8_t *scales, lanes *q) {
    half(scales, block, 0);
    half(scales + 32, block, 2);
    turn(q, block, 4, 4);
}

static void put_q5_1(const uint8_t *const *block, uint8_t *scales, lanes *q) {
    half(scales, block, 0);
    half(scales + 32, block, 2);
    fifths(q[4], block, 4);
    turn(q, block, 8, 4);
}

// Scales and minimums of eight times 32 elements: 6 bits each, of the last four the upper two next
// to those of the first four.
static inline void put_nested(const uint8_t *const *block, uint8_t *scales) {
    half(scales, block, 0);
    half(scales + 32, block, 2);
    lanes part[4], s[2], m[2]; // of part the last three
    turn(part, block, 0, 4);
    for (int r = 0; r < LANES; r += 4) {
        quad a = load(part[1] + r), b = load(part[2] + r), c = load(part[3] + r);
        store(s[0] + r, a & 0x3f3f3f3f);
        store(m[0] + r, b & 0x3f3f3f3f);
        store(s[1] + r, (c & 0x0f0f0f0f) | (a >> 2 & 0x30303030));
        store(m[1] + r, (c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030));
    }
    for (int h = 0; h < 2; h++) {
        bytes(scales + 64 + 128 * h, 32, s[h]);
        bytes(scales + 80 + 128 * h, 32, m[h]);
    }
}

static void put_q4_k(const uint8_t *const *block, uint8_t *scales, lanes *q) {
    put_nested(block, scales);
    for (int g = 0; g < 8; g += 2) nibbles(q + 4 * g, q + 4 * g + 4, block, 16 + 16 * g);
}

static void put_q5_k(const uint8_t *const *block, uint8_t *scales, lanes *q) {
    put_nested(block, scales);
    for (int g = 0; g < 8; g += 2) nibbles(q + 5 * g, q + 5 * g + 5, block, 48 + 16 * g);
    // Bit g of byte e is that of element e of the g-th 32. With the bits of the word's index first,
    // these steps take e4 e3 e2, e1 e0 g2 g1 g0 to g0 g1 g2, e1 e3 e2 e0 e4.
    lanes f[8];
    turn(f, block, 16, 8);
    for (int w = 0; w < 8; w += 2) exchange(f[w], f[w + 1], 4, 0x0f0f0f0f); // e2 and g2
    for (int w = 0; w < 4; w++) exchange(f[w], f[w + 4], 1, 0x55555555);    // e4 and g0
    for (int w = 0; w < 8; w++) {
        if (w & 2) continue;
        exchange(f[w], f[w + 2], 8, 0x00ff00ff); // e3 and e0
        exchange(f[w], f[w + 2], 2, 0x33333333); // e0 and g1
    }
    for (int g = 0; g < 8; g++)
        memcpy(q[5 * g + 4], f[(g & 1) * 4 + (g & 2) + g / 4], sizeof(lanes));
}

static void put_q6_k(const uint8_t *const *block, uint8_t *scales, lanes *q) {
    lanes s[4], f[8];
    half(scales, block, 208);
    turn(s, block, 192, 4);
    for (int w = 0; w < 4; w++) bytes(scales + 32 + 64 * w, 16, s[w]);
    for (int h = 0; h < 2; h++, q += 4 * 6) {
        for (int g = 0; g < 2; g++) nibbles(q + 6 * g, q + 6 * (g + 2), block, 64 * h + 32 * g);
        // Bits 2g and 2g+1 of byte e are those of element e of the g-th 32. These steps take e4 e3
        // e2, e1 e0 g1 g0 b to g0 e3 g1, e1 e2 e0 e4 b.
        turn(f, block, 128 + 32 * h, 8);
        for (int w = 0; w < 4; w++) exchange(f[w], f[w + 4], 2, 0x33333333); // e4 and g0
        for (int w = 0; w < 8; w += 2) {
            exchange(f[w], f[w + 1], 8, 0x00ff00ff); // e2 and e0
            exchange(f[w], f[w + 1], 4, 0x0f0f0f0f); // e0 and g1
        }
        for (int g = 0; g < 4; g++) {
            for (int i = 0; i < 2; i++)
                memcpy(q[6 * g + 4 + i], f[(g & 1) * 4 + 2 * i + g / 2], sizeof(lanes));
        }
    }
}

// How a block of a type becomes its part of a group.
typedef struct rule {
    // of a block; of its part of a group: bytes of scales, words of quants
    int elements, bytes, scales, words;
    void (*put)(const uint8_t *const *block, uint8_t *scales, lanes *q);
} rule;

static const rule rules[] = {
    [NPK_Q8_0] = {32, 34, 32, 8, put_q8_0},     [NPK_Q4_0] = {32, 18, 32, 4, put_q4_0},
    [NPK_Q5_0] = {32, 22, 32, 5, put_q5_0},     [NPK_Q4_1] = {32, 20, 64, 4, put_q4_1},
    [NPK_Q5_1] = {32, 24, 64, 5, put_q5_1},     [NPK_Q4_K] = {256, 144, 320, 32, put_q4_k},
    [NPK_Q5_K] = {256, 176, 320, 40, put_q5_k}, [NPK_Q6_K] = {256, 210, 288, 48, put_q6_k},
};

void npk_regroup(int type, void *dst, const void *src, int64_t rows, int64_t k, int64_t first,
                 int64_t last) {
    const rule *f = &rules[type];
    const int64_t n = k / f->elements, scale_bytes = (n * f->scales + 63) / 64 * 64,
                  group_bytes = scale_bytes + n * f->words * (int64_t)sizeof(lanes);
    // Stands in for missing rows: its scales and, in a group, its quants are zeros.
    uint8_t none[BLOCK_BYTES];
    memset(none, type == NPK_Q8_0 ? 0x80 : 0, sizeof none);
    memset(none, 0, 2);
    for (int64_t g = first; g < last; g++) {
        uint8_t *scales = (uint8_t *)dst + g * group_bytes;
        lanes *q = (lanes *)(scales + scale_bytes);
        const uint8_t *block[LANES];
        int step[LANES];
        for (int r = 0; r < LANES; r++) {
            int64_t row = g * LANES + r;
            block[r] = row < rows ? (const uint8_t *)src + row * n * f->bytes : none;
            step[r] = row < rows ? f->bytes : 0;
        }
        for (int64_t b = 0; b < n; b++, scales += f->scales, q += f->words) {
            f->put(block, scales, q);
            for (int r = 0; r < LANES; r++) block[r] += step[r];
        }
    }
}

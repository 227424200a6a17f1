//go:build cgo && !windows && (amd64 || arm64)

// Compression of BF16 weights to BF12. Loops over 32 columns are written so that compilers
// vectorize them.

#include "bf12_pack.h"

#include <string.h>

enum { EXPONENTS = 256, CODES = 16, RARE = 1024, COLUMNS = NPK_BLOCK4_COLUMNS };
_Static_assert(2 * NPK_BLOCK16_ROWS == COLUMNS,
               "a pair of every row of a strip is as much as the columns of a row");

static inline uint16_t exponent(uint16_t x) { return x >> 7 & (EXPONENTS - 1); }

// Returns 1 if an exponent has no code, and 0 otherwise. If zeros is 1, exponent 0 has code 0.
static inline uint16_t escapes(uint16_t e, uint16_t base, uint16_t zeros) {
    const uint16_t above = (uint16_t)(e - base - zeros), last = (uint16_t)(CODES - 1 - zeros);
    return (uint16_t)(above > last) & (uint16_t)(e >= zeros);
}

// Returns a base with few escapes: the one that gives the largest exponent the last code, or the
// best of all if a few large values would make many small ones escapes.
static int base_of(const uint16_t *row, int64_t k, uint16_t zeros) {
    uint16_t most[COLUMNS] = {0}, outside[COLUMNS] = {0};
    for (int64_t i = 0; i < k; i += COLUMNS)
        for (int j = 0; j < COLUMNS; j++)
            most[j] = exponent(row[i + j]) > most[j] ? exponent(row[i + j]) : most[j];
    uint16_t top = 0;
    for (int j = 0; j < COLUMNS; j++) top = most[j] > top ? most[j] : top;
    const uint16_t base = top < CODES ? 0 : (uint16_t)(top - CODES + 1);
    for (int64_t i = 0; i < k; i += COLUMNS)
        for (int j = 0; j < COLUMNS; j++) outside[j] += escapes(exponent(row[i + j]), base, zeros);
    int64_t count = 0;
    for (int j = 0; j < COLUMNS; j++) count += outside[j];
    if (count * RARE <= k) return base;
    int64_t seen[EXPONENTS] = {0}, within = 0, best = -1;
    int at = 0;
    for (int64_t i = 0; i < k; i++) seen[exponent(row[i])]++;
    const int window = CODES - zeros;
    for (int e = zeros; e < EXPONENTS; e++) {
        within += seen[e] - (e < window + zeros ? 0 : seen[e - window]);
        if (e < CODES - 1 || within < best) continue;
        best = within; // of equals the highest, which has room below
        at = e - CODES + 1;
    }
    return at;
}

// Encodes 32 columns of a row. Returns whether one of them is an escape.
static inline int encode(uint16_t *x, const uint16_t *from, uint16_t base, uint16_t zeros) {
    uint16_t some = 0;
    for (int j = 0; j < COLUMNS; j++) {
        const uint16_t e = exponent(from[j]), code = e >= zeros ? (uint16_t)(e - base) : 0;
        some |= escapes(e, base, zeros);
        x[j] = (uint16_t)((from[j] & 0x807f) | (code & 15) << 7);
    }
    return some;
}

// Folds four times 32 codes into three times 32 words.
static inline void fold(uint16_t *to, uint16_t (*x)[COLUMNS]) {
    const uint16_t *last = x[3];
    for (int j = 0; j < COLUMNS; j++) {
        to[j] = (uint16_t)(x[0][j] | (last[j] & 0x8000) >> 1 | (last[j] & 7) << 11);
        to[COLUMNS + j] = (uint16_t)(x[1][j] | (last[j] & 0x780) << 4);
        to[2 * COLUMNS + j] = (uint16_t)(x[2][j] | (last[j] & 0x78) << 8);
    }
}

// Computes the bases of a block of rows of which the matrix has n; the others are zeros.
static void bases_of(uint8_t *bases, int group, const uint16_t *rows, int64_t n, int64_t k,
                     uint16_t zeros) {
    for (int r = 0; r < group; r++) bases[r] = r < n ? (uint8_t)base_of(rows + r * k, k, zeros) : 0;
}

static const uint16_t none[COLUMNS];

int64_t npk_to_blocks4(uint8_t *codes, npk_block4 *heads, uint32_t *list, int64_t room,
                       const uint16_t *rows, int64_t n, int64_t k, int zeros) {
    const uint16_t has = zeros != 0;
    uint16_t *to = (uint16_t *)codes;
    int64_t count = 0;
    for (int64_t first = 0; first < n; first += NPK_BLOCK4_ROWS, heads++) {
        heads->escapes = (uint32_t)count;
        bases_of(heads->bases, NPK_BLOCK4_ROWS, rows + first * k, n - first, k, has);
        for (int64_t i = 0; i < k; i += COLUMNS, to += 3 * COLUMNS) {
            uint16_t x[NPK_BLOCK4_ROWS][COLUMNS];
            for (int r = 0; r < NPK_BLOCK4_ROWS; r++) {
                const uint16_t *from = first + r < n ? rows + (first + r) * k + i : none,
                               base = heads->bases[r];
                if (!encode(x[r], from, base, has)) continue;
                for (int j = 0; j < COLUMNS; j++) {
                    if (!escapes(exponent(from[j]), base, has)) continue;
                    if (count == room) return -1;
                    list[count++] =
                        (uint32_t)((i * NPK_BLOCK4_ROWS + r * COLUMNS + j) << 16) | from[j];
                }
            }
            fold(to, x);
        }
    }
    return count;
}

int64_t npk_to_blocks16(uint8_t *strips, uint32_t *list, int64_t room, const uint16_t *rows,
                        int64_t n, int64_t k, int zeros) {
    const uint16_t has = zeros != 0;
    int64_t count = 0;
    for (int64_t first = 0; first < n; first += NPK_BLOCK16_ROWS, strips += npk_block16_bytes(k)) {
        npk_block16 *strip = (npk_block16 *)strips;
        uint16_t *to = (uint16_t *)(strips + npk_block16_header(k));
        strip->escapes = (uint32_t)count;
        bases_of(strip->bases, NPK_BLOCK16_ROWS, rows + first * k, n - first, k, has);
        for (int64_t i = 0; i < k; i += COLUMNS) {
            uint16_t x[COLUMNS], pairs[COLUMNS / 2][2 * NPK_BLOCK16_ROWS];
            int some = 0;
            for (int r = 0; r < NPK_BLOCK16_ROWS; r++) {
                some |= encode(x, first + r < n ? rows + (first + r) * k + i : none,
                               strip->bases[r], has);
                for (int p = 0; p < COLUMNS / 2; p++) memcpy(&pairs[p][2 * r], x + 2 * p, 4);
            }
            for (int64_t at = i; some && at < i + COLUMNS; at++) // in the order of columns
                for (int64_t r = 0; r < NPK_BLOCK16_ROWS && first + r < n; r++) {
                    const uint16_t e = exponent(rows[(first + r) * k + at]);
                    if (!escapes(e, strip->bases[r], has)) continue;
                    if (count == room) return -1;
                    list[count++] = (uint32_t)(at * NPK_BLOCK16_ROWS + r) << 8 | e;
                }
            for (int p = 0; p < COLUMNS / 2; p += 4, to += 3 * COLUMNS) fold(to, pairs + p);
        }
        strip->count = (uint32_t)(count - strip->escapes);
        if (npk_block16_has_room(strip->count, k))
            memcpy(strip->here, list + strip->escapes, strip->count * sizeof *list);
    }
    return count;
}

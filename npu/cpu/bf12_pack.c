//go:build cgo && !windows && (amd64 || arm64)

// BF16 weights into BF12. Loops over 32 columns are written so that compilers make vectors of them.

#include "bf12_pack.h"

enum { EXPONENTS = 256, WINDOW = 16, RARE = 1024, COLUMNS = NPK_BF12_COLUMNS };

static inline uint16_t exponent(uint16_t x) { return x >> 7 & (EXPONENTS - 1); }

// A base with few escapes: that with which the largest exponent is the last of the window, or, where a few large values would so cost many small ones, the best of all.
static int base_of(const uint16_t *row, int64_t k) {
    uint16_t most[COLUMNS] = {0}, outside[COLUMNS] = {0};
    for (int64_t i = 0; i < k; i += COLUMNS)
        for (int j = 0; j < COLUMNS; j++) most[j] = exponent(row[i + j]) > most[j] ? exponent(row[i + j]) : most[j];
    uint16_t top = 0;
    for (int j = 0; j < COLUMNS; j++) top = most[j] > top ? most[j] : top;
    const uint16_t base = top < WINDOW ? 0 : (uint16_t)(top - WINDOW + 1);
    for (int64_t i = 0; i < k; i += COLUMNS)
        for (int j = 0; j < COLUMNS; j++) outside[j] += exponent(row[i + j]) < base;
    int64_t count = 0;
    for (int j = 0; j < COLUMNS; j++) count += outside[j];
    if (count * RARE <= k) return base;
    int64_t seen[EXPONENTS] = {0}, within = 0, best = -1;
    int at = 0;
    for (int64_t i = 0; i < k; i++) seen[exponent(row[i])]++;
    for (int e = 0; e < EXPONENTS; e++) {
        within += seen[e] - (e < WINDOW ? 0 : seen[e - WINDOW]);
        if (e < WINDOW - 1 || within < best) continue;
        best = within; // of equals the highest, which has room below
        at = e - WINDOW + 1;
    }
    return at;
}

int64_t npk_to_bf12(uint8_t *codes, npk_quad *quads, uint32_t *escapes, int64_t room, const uint16_t *rows, int64_t n, int64_t k) {
    static const uint16_t none[COLUMNS];
    uint16_t *to = (uint16_t *)codes;
    int64_t count = 0;
    for (int64_t first = 0; first < n; first += NPK_BF12_ROWS, quads++) {
        quads->escapes = (uint32_t)count;
        for (int r = 0; r < NPK_BF12_ROWS; r++) quads->bases[r] = first + r < n ? (uint8_t)base_of(rows + (first + r) * k, k) : 0;
        for (int64_t i = 0; i < k; i += COLUMNS, to += 3 * COLUMNS) {
            uint16_t x[NPK_BF12_ROWS][COLUMNS];
            for (int r = 0; r < NPK_BF12_ROWS; r++) {
                const uint16_t *from = first + r < n ? rows + (first + r) * k + i : none, base = quads->bases[r];
                uint16_t outside = 0;
                for (int j = 0; j < COLUMNS; j++) {
                    const uint16_t code = (uint16_t)(exponent(from[j]) - base);
                    outside |= code;
                    x[r][j] = (uint16_t)((from[j] & 0x807f) | (code & 15) << 7);
                }
                if (outside < WINDOW) continue;
                for (int j = 0; j < COLUMNS; j++) {
                    if ((uint16_t)(exponent(from[j]) - base) < WINDOW) continue;
                    if (count == room) return -1;
                    escapes[count++] = (uint32_t)((i * NPK_BF12_ROWS + r * COLUMNS + j) << 16) | from[j];
                }
            }
            const uint16_t *last = x[3];
            for (int j = 0; j < COLUMNS; j++) {
                to[j] = (uint16_t)(x[0][j] | (last[j] & 0x8000) >> 1 | (last[j] & 7) << 11);
                to[COLUMNS + j] = (uint16_t)(x[1][j] | (last[j] & 0x780) << 4);
                to[2 * COLUMNS + j] = (uint16_t)(x[2][j] | (last[j] & 0x78) << 8);
            }
        }
    }
    return count;
}

// BF16 weights into BF12: see npk.h for how these look.

#ifndef NPK_BF12_PACK_H
#define NPK_BF12_PACK_H

#include <stdint.h>

#include "csrc/npk.h"

// npk_to_blocks4 fills quads from n rows of k elements of BF16, k a multiple of NPK_BLOCK4_COLUMNS; rows that the last quad lacks are zeros. It gives the
// number of escapes, to which the quads' numbers refer, or -1 where there are more than room. Zeros says whether the exponent 0 has a code. Calls for other quads may be in
// progress. npk_to_blocks16 does the same for strips, heads and all.
int64_t npk_to_blocks4(uint8_t *codes, npk_block4 *quads, uint32_t *escapes, int64_t room, const uint16_t *rows, int64_t n, int64_t k, int zeros);
int64_t npk_to_blocks16(uint8_t *strips, uint32_t *escapes, int64_t room, const uint16_t *rows, int64_t n, int64_t k, int zeros);

#endif

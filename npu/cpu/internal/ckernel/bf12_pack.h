// Compression of BF16 weights to BF12: see npk.h for the layout.

#ifndef NPK_BF12_PACK_H
#define NPK_BF12_PACK_H

#include <stdint.h>

#include "csrc/npk.h"

// npk_to_blocks4 fills 4-row blocks from n rows of k elements of BF16, k a multiple of
// NPK_BLOCK4_COLUMNS. Rows that the last block lacks are zeros. It returns the number of escapes,
// which the headers index, or -1 if there are more than room. Zeros tells whether exponent 0 has a
// code. Calls for other blocks may be in progress. npk_to_blocks16 does the same for 16-row blocks,
// headers included.
int64_t npk_to_blocks4(uint8_t *codes, npk_block4 *heads, uint32_t *escapes, int64_t room,
                       const uint16_t *rows, int64_t n, int64_t k, int zeros);
int64_t npk_to_blocks16(uint8_t *strips, uint32_t *escapes, int64_t room, const uint16_t *rows,
                        int64_t n, int64_t k, int zeros);

#endif

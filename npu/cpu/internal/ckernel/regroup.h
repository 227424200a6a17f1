// Quantised weights from the order of a file into groups: see grouped.go for how these look.

#ifndef NPK_REGROUP_H
#define NPK_REGROUP_H

#include <stdint.h>

// npk_regroup fills groups first to last-1 of a weight of a grouped type at dst, 64-byte aligned, from its rows of k elements, whole blocks, at src.
// Only bytes of these groups are written, and rows that a last group lacks become zeros. Calls for other groups may be in progress.
void npk_regroup(int type, void *dst, const void *src, int64_t rows, int64_t k, int64_t first, int64_t last);

#endif

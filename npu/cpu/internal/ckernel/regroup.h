// Repacking of quantized weights into groups: see grouped.go in package kernel for the layout.

#ifndef NPK_REGROUP_H
#define NPK_REGROUP_H

#include <stdint.h>

// npk_regroup fills groups first to last-1 of a weight of a grouped type at dst, 64-byte aligned,
// from its rows of k elements, whole blocks, at src. It writes only these groups, and rows that the
// last group lacks become zeros. Calls for other groups may be in progress.
void npk_regroup(int type, void *dst, const void *src, int64_t rows, int64_t k, int64_t first,
                 int64_t last);

#endif

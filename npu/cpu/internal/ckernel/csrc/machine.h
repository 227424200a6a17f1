// Rules that depend on the micro-architecture rather than on the instruction set: the fastest way
// to read memory. All of them are in this table.

#ifndef NPK_MACHINE_H
#define NPK_MACHINE_H

#include <stdint.h>

typedef struct npk_machine {
    const char *name;
    // A thread reads memory fastest as one stream from front to back. Several rows side by side are
    // several streams, each of which ends with its row.
    int one_stream;
    // The hardware prefetcher reads such a stream far enough ahead. Software prefetch beyond it
    // costs bandwidth while the loop fits the L1 cache; one more into L1 gains a little.
    int reads_ahead;
} npk_machine;

// By CPUID family. Other AMD CPUs are taken to be like Zen 5; all other CPUs are the last row.
static const struct {
    unsigned family;
    npk_machine machine;
} npk_machines[] = {
    {0x19, {"AMD Zen 3 and Zen 4", 1, 1}},
    {0x1a, {"AMD Zen 5", 1, 0}},
    {1, {"AMD", 1, 0}},
    {0, {"other", 0, 0}},
};

#endif

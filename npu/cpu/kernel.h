// How the pool sees kernels: a table for each variant.

#ifndef NPK_KERNEL_H
#define NPK_KERNEL_H

#include "npk.h"

// A thread's view of a run.
typedef struct npk_thread {
    char *scratch;          // as many bytes as the kernels' scratch functions ask for, 64-byte aligned
    const uint32_t *cancel;
    int threads;
    int stream;             // memory is fastest when a thread reads it from front to back
    int follows;            // the CPU reads such a stream ahead by itself
    const npk_cmd *prepared; // command since the last barrier whose operands lie converted in scratch
} npk_thread;

// A kind of command. Its work is cut into phases, with a barrier between them, and these into chunks that are independent of each other.
typedef struct npk_kernel {
    int (*phases)(const npk_cmd *c); // NULL: one
    int64_t (*chunks)(const npk_cmd *c, int phase, int threads);
    void (*run)(npk_thread *t, const npk_cmd *c, int phase, int64_t chunk);
    int64_t (*scratch)(const npk_cmd *c); // bytes per thread; NULL: none
} npk_kernel;

typedef struct npk_kernels {
    int mr, nr, peak_steps; // of one product of NPK_PEAK
    npk_kernel of[NPK_KINDS];
} npk_kernels;

extern const npk_kernels npk_generic, npk_avx2, npk_avx512, npk_avx512bf16;
extern const npk_kernels npk_units, npk_vnni; // of products alone

// Compilers that know AMX.
#if defined(__x86_64__) && (defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11)
#define NPK_WITH_AMX
extern const npk_kernels npk_amx; // of products and attention alone
int npk_amx_works(void);
#endif

// Compilers that know Arm's BF16 instructions.
#if defined(__aarch64__) && (defined(__clang__) ? __clang_major__ >= 16 : __GNUC__ >= 10)
#define NPK_WITH_ARMBF16
extern const npk_kernels npk_armbf16;
#endif

static inline int npk_cancelled(const npk_thread *t) { return __atomic_load_n(t->cancel, __ATOMIC_RELAXED) != 0; }

static inline int64_t npk_size(int type) { return type == NPK_F32 || type == NPK_I32 ? 4 : 2; }
static inline const void *npk_at(const void *p, int type, int64_t i) { return (const char *)p + i * npk_size(type); }
static inline void *npk_to(void *p, int type, int64_t i) { return (char *)p + i * npk_size(type); }
static inline int64_t npk_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t npk_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t npk_up(int64_t a, int64_t b) { return (a + b - 1) / b * b; } // to a multiple of b

// Steps of the inner loop in one product of NPK_PEAK: both panels fit the nearest cache.
enum { NPK_PEAK_STEPS = 128 };

// How many rows of weights a chunk has, whole groups: a megabyte, or less so that every thread gets several chunks: large enough that the counter does not show in a
// profile, small enough that a slow core delays the others little.
static inline int64_t npk_step_rows(const npk_cmd *c, int threads, int64_t group) {
    int64_t rows = npk_max(1, (1 << 20) / (c->k * npk_size(c->bt)));
    return npk_up(npk_min(rows, npk_max(1, c->n / (8 * threads))), group);
}

// Whether the results of a product are FP32, whatever becomes of them.
static inline int npk_makes_floats(const npk_cmd *c) { return c->yt == NPK_F32 || (c->flags & NPK_JOINED); }

// Positions that one chunk of a decoding attention looks at. Partial results are joined in the order of positions, so that nothing depends on
// which thread computed them.
enum { NPK_SPAN = 128 };

// Most queries (rows times query heads of a key-value head) that attention takes the decoding way.
enum { NPK_SPAN_QUERIES = 16 };

static inline int npk_by_spans(const npk_cmd *c, const npk_seg *s) {
    return s->rows == 1 || s->rows * (c->n / c->p[0]) <= NPK_SPAN_QUERIES;
}

#endif

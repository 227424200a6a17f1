// How the pool sees kernels: tables of functions.

#ifndef NPK_KERNEL_H
#define NPK_KERNEL_H

#include "machine.h"
#include "npk.h"

// Compilers that know AMX, and Arm's BF16 instructions.
#if defined(__x86_64__) && (defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11)
#define NPK_WITH_AMX
#endif
#if defined(__aarch64__) && (defined(__clang__) ? __clang_major__ >= 16 : __GNUC__ >= 10)
#define NPK_WITH_ARMBF16
#endif

// A function that is called, and is not copied for some of its arguments.
#ifdef __clang__
#define NOINLINE __attribute__((noinline))
#else
#define NOINLINE __attribute__((noinline, noclone))
#endif

// A thread's view of a run.
typedef struct npk_thread {
    char *scratch; // as many bytes as the kernels' scratch functions ask for, 64-byte aligned
    const uint32_t *cancel;
    int threads;
    const npk_machine *machine;
    const npk_cmd *prepared; // command since the last barrier whose operands scratch has, converted
} npk_thread;

// A kind of command. Its work is split into phases, with a barrier between them, and these into
// chunks that are independent of each other.
typedef struct npk_kernel {
    int (*phases)(const npk_cmd *c); // NULL: one
    int64_t (*chunks)(const npk_cmd *c, int phase, int threads);
    void (*run)(npk_thread *t, const npk_cmd *c, int phase, int64_t chunk);
    int64_t (*scratch)(const npk_cmd *c); // bytes per thread; NULL: none
} npk_kernel;

struct npk_kernels {
    int64_t (*pack_bytes)(const npk_cmd *c); // of NPK_PACK
    int64_t peak_flops;                      // of one product of NPK_PEAK
    npk_kernel of[NPK_KINDS];
};

static inline int npk_cancelled(const npk_thread *t) {
    return __atomic_load_n(t->cancel, __ATOMIC_RELAXED) != 0;
}

// Whether the thread should read weights as one stream: see machine.h. No such arm64 CPU is known.
static inline int npk_one_stream(const npk_thread *t) {
#if defined(__x86_64__)
    return t->machine->one_stream;
#else
    (void)t;
    return 0;
#endif
}

static inline int64_t npk_size(int type) { return type == NPK_F32 || type == NPK_I32 ? 4 : 2; }
static inline const void *npk_at(const void *p, int type, int64_t i) {
    return (const char *)p + i * npk_size(type);
}
static inline void *npk_to(void *p, int type, int64_t i) { return (char *)p + i * npk_size(type); }
static inline int64_t npk_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t npk_max(int64_t a, int64_t b) { return a > b ? a : b; }

// Rounds up to a multiple of b.
static inline int64_t npk_up(int64_t a, int64_t b) { return (a + b - 1) / b * b; }

// Steps of the inner loop in one product of NPK_PEAK: both panels fit the L1 cache.
enum { NPK_PEAK_STEPS = 128 };

// Rows of weights of a chunk, in whole groups: a megabyte, or less so that every thread gets
// several chunks. That is large enough to hide the cost of the chunk counter and small enough that
// a slow core delays the others little.
static inline int64_t npk_step_rows(const npk_cmd *c, int threads, int64_t group) {
    int64_t rows = npk_max(1, (1 << 20) / (c->k * npk_size(c->bt)));
    return npk_up(npk_min(rows, npk_max(1, c->n / (8 * threads))), group);
}

// Whether the results of a product are FP32 before anything else is done with them.
static inline int npk_makes_floats(const npk_cmd *c) {
    return c->yt == NPK_F32 || (c->flags & NPK_FUSED);
}

// Positions of one chunk of decoding attention. Partial results are combined in the order of
// positions, so that nothing depends on which thread computed them.
enum { NPK_SPAN = 128 };

// Most queries (rows times query heads per key-value head) of decoding attention.
enum { NPK_SPAN_QUERIES = 16 };

static inline int npk_by_spans(const npk_cmd *c, const npk_seg *s) {
    return s->rows == 1 || s->rows * (c->n / c->kv_heads) <= NPK_SPAN_QUERIES;
}

#endif

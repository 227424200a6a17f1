//go:build cgo && !windows && (amd64 || arm64)

// The thread pool: threads that walk command lists together.
//
// An idle worker spins on a counter for a millisecond, then sleeps. Waking a thread takes tens of
// microseconds, while a spinning one sees the counter in a tenth of one: calls less than a
// millisecond apart find the workers awake.
//
// Threads that wait at a barrier also spin, then yield their cores, then sleep: on a machine with
// other load the thread that is waited for may have no core, and the scheduler charges the others
// for the time they spin.

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

#include "csrc/kernel.h"

enum {
    IDLE_NS = 1000000,   // before a worker sleeps
    BUSY_SPINS = 500,    // before a waiting thread yields its core: 10 to 20 us
    BARRIER_NS = 300000, // from then on before it sleeps
    SCRATCH_ALIGN = 4096
};

struct npk_pool {
    int threads, table;
    int started; // workers, one fewer than threads
    pthread_t *ids;
    npk_thread *state; // of each thread, the caller's first
    char *scratch;
    int64_t scratch_each;
    uint32_t *taken; // by command, chunks taken of each thread's range
    int64_t taken_size;
    pthread_mutex_t mutex;
    pthread_cond_t wake, passed; // a new list; a barrier was passed

    // The current list, written before job.
    npk_cmd *cmds;
    int64_t n;
    int trace;
    int64_t began;

    _Alignas(64) uint32_t job; // number of the list, which workers watch
    uint32_t parked;           // workers that sleep or are about to
    uint32_t stop;
    _Alignas(64) uint32_t arrived; // threads at the barrier
    _Alignas(64) uint32_t round;   // barriers passed
    uint32_t asleep;               // threads that sleep at the barrier, or are about to
};

typedef struct start {
    npk_pool *pool;
    int id;
} start;

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void barrier(npk_pool *p) {
    if (p->threads == 1) return;
    uint32_t round = __atomic_load_n(&p->round, __ATOMIC_RELAXED);
    if (__atomic_add_fetch(&p->arrived, 1, __ATOMIC_ACQ_REL) == (uint32_t)p->threads) {
        __atomic_store_n(&p->arrived, 0, __ATOMIC_RELAXED);
        // before asleep is read: one of the two sees the other
        __atomic_store_n(&p->round, round + 1, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(&p->asleep, __ATOMIC_SEQ_CST) > 0) {
            pthread_mutex_lock(&p->mutex);
            pthread_cond_broadcast(&p->passed);
            pthread_mutex_unlock(&p->mutex);
        }
        return;
    }
    int64_t until = 0;
    for (int spins = 0; __atomic_load_n(&p->round, __ATOMIC_ACQUIRE) == round; spins++) {
        if (spins < BUSY_SPINS) {
            relax();
            continue;
        }
        int64_t t = now();
        if (until == 0) until = t + BARRIER_NS;
        if (t < until) {
            sched_yield(); // with more threads than cores, the one we wait for may need ours
            continue;
        }
        pthread_mutex_lock(&p->mutex);
        __atomic_add_fetch(&p->asleep, 1, __ATOMIC_SEQ_CST);
        while (__atomic_load_n(&p->round, __ATOMIC_SEQ_CST) == round)
            pthread_cond_wait(&p->passed, &p->mutex);
        __atomic_sub_fetch(&p->asleep, 1, __ATOMIC_SEQ_CST);
        pthread_mutex_unlock(&p->mutex);
        return;
    }
}

static const npk_kernels *tables[NPK_TABLES];

void npk_register(int table, const npk_kernels *kernels) { tables[table] = kernels; }

static const npk_kernels *table_of(const npk_pool *p, const npk_cmd *c) {
    return tables[c->table == NPK_DEFAULT ? p->table : c->table];
}

static const npk_kernel *kernel_of(const npk_pool *p, const npk_cmd *c) {
    return &table_of(p, c)->of[c->kind];
}

// Rows of activations up to which a product with 16-row blocks of BF12 is memory-bound.
enum { MEMORY_BOUND_ROWS = 128 };

// Returns whether the chunks of a command, which has one phase, are weights that are adjacent in
// memory, so that a thread should take adjacent chunks to use its own prefetches.
static int in_ranges(const npk_cmd *c) {
    return c->kind == NPK_GEMV || c->kind == NPK_INPLACE ||
           (c->kind == NPK_GEMM && c->bt == NPK_BF12X16 && c->m <= MEMORY_BOUND_ROWS);
}

// Takes chunks of such a command: first those of this thread's own range, from front to back, then
// the rest of the others' ranges.
static void drain_ranges(npk_pool *p, npk_thread *t, const npk_cmd *c, const npk_kernel *k) {
    int64_t n = k->chunks(c, 0, p->threads), own = t - p->state;
    uint32_t *taken = p->taken + (c - p->cmds) * p->threads;
    for (int64_t i = 0; i < p->threads; i++) {
        int64_t range = (own + i) % p->threads, first = range * n / p->threads,
                end = (range + 1) * n / p->threads;
        while (!npk_cancelled(t)) {
            int64_t chunk = first + __atomic_fetch_add(&taken[range], 1, __ATOMIC_RELAXED);
            if (chunk >= end) break;
            k->run(t, c, 0, chunk);
        }
    }
}

// Takes chunks of one phase until there are none.
static void drain(npk_pool *p, npk_thread *t, npk_cmd *c, const npk_kernel *k, int phase) {
    if (in_ranges(c)) {
        drain_ranges(p, t, c, k);
        return;
    }
    int64_t n = k->chunks(c, phase, p->threads);
    while (!npk_cancelled(t)) {
        int64_t chunk = __atomic_fetch_add(&c->next[phase], 1, __ATOMIC_RELAXED);
        if (chunk >= n) break;
        k->run(t, c, phase, chunk);
    }
}

static void walk(npk_pool *p, int id) {
    npk_thread *t = &p->state[id];
    int timed = p->trace && id == 0;
    t->prepared = NULL;
    for (int64_t i = 0; i < p->n; i++) {
        npk_cmd *c = &p->cmds[i];
        const npk_kernel *k = kernel_of(p, c);
        if (c->barrier) {
            t->prepared = NULL; // its source may change from here on
            if (!p->trace) barrier(p);
        }
        if (timed) c->start = now() - p->began;
        int phases = k->phases ? k->phases(c) : 1;
        for (int phase = 0; phase < phases; phase++) {
            if (phase > 0) barrier(p);
            drain(p, t, c, k, phase);
        }
        // If traced, threads wait after every command, so that its end is its own.
        if (p->trace) barrier(p);
        if (timed) c->end = now() - p->began;
    }
    barrier(p);
}

// Waits for a list other than the one seen last and returns its number.
static uint32_t await(npk_pool *p, uint32_t seen) {
    int64_t until = 0;
    for (int spins = 0;; spins++) {
        uint32_t job = __atomic_load_n(&p->job, __ATOMIC_SEQ_CST);
        if (job != seen) return job;
        relax();
        if (spins % 64 == 63) {
            int64_t t = now();
            if (until == 0) until = t + IDLE_NS;
            if (t > until) break;
        }
    }
    pthread_mutex_lock(&p->mutex);
    __atomic_add_fetch(&p->parked, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&p->job, __ATOMIC_SEQ_CST) == seen)
        pthread_cond_wait(&p->wake, &p->mutex);
    __atomic_sub_fetch(&p->parked, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&p->mutex);
    return __atomic_load_n(&p->job, __ATOMIC_SEQ_CST);
}

// Publishes a new list. A worker counts itself as parked before it reads job for the last time, so
// that one of the two sees the other.
static void announce(npk_pool *p) {
    __atomic_add_fetch(&p->job, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&p->parked, __ATOMIC_SEQ_CST) > 0) {
        pthread_mutex_lock(&p->mutex);
        pthread_cond_broadcast(&p->wake);
        pthread_mutex_unlock(&p->mutex);
    }
}

static void *worker(void *arg) {
    start s = *(start *)arg;
    free(arg);
    uint32_t seen = 0;
    for (;;) {
        seen = await(s.pool, seen);
        if (__atomic_load_n(&s.pool->stop, __ATOMIC_ACQUIRE)) return NULL;
        walk(s.pool, s.id);
    }
}

// Starts a worker. It blocks all signals but those it causes itself: the others are for the Go
// runtime's threads.
static int launch(npk_pool *p, int id) {
    sigset_t all, old;
    start *s = malloc(sizeof *s);
    if (!s) return -1;
    *s = (start){p, id};
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGILL);
    sigdelset(&all, SIGFPE);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int err = pthread_create(&p->ids[id - 1], NULL, worker, s);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (err) free(s);
    return err;
}

// Returns the row of npk_machines for this CPU.
static const npk_machine *find_machine(void) {
    unsigned family = 0;
#if defined(__x86_64__)
    unsigned a, b, c, d;
    if (__builtin_cpu_is("amd") && __get_cpuid(1, &a, &b, &c, &d))
        family = (a >> 8 & 15) + (a >> 20 & 255);
#endif
    for (size_t i = 0;; i++) {
        const unsigned row = npk_machines[i].family;
        if (row == family || (row == 1 && family != 0) || row == 0) return &npk_machines[i].machine;
    }
}

const char *npk_machine_name(void) { return find_machine()->name; }

npk_pool *npk_open(int threads, int table) {
    npk_pool *p;
    if (posix_memalign((void **)&p, 64, sizeof *p)) return NULL;
    memset(p, 0, sizeof *p);
    p->threads = threads;
    p->table = table;
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->passed, NULL);
    p->ids = calloc((size_t)threads, sizeof *p->ids);
    p->state = calloc((size_t)threads, sizeof *p->state);
    if (!p->ids || !p->state) {
        npk_close(p);
        return NULL;
    }
    for (int id = 0; id < threads; id++) p->state[id].machine = find_machine();
    for (int id = 1; id < threads; id++) {
        if (launch(p, id)) {
            npk_close(p);
            return NULL;
        }
        p->started++;
    }
    return p;
}

void npk_close(npk_pool *p) {
    __atomic_store_n(&p->stop, 1, __ATOMIC_RELEASE);
    announce(p);
    for (int i = 0; i < p->started; i++) pthread_join(p->ids[i], NULL);
    pthread_cond_destroy(&p->wake);
    pthread_cond_destroy(&p->passed);
    pthread_mutex_destroy(&p->mutex);
    free(p->scratch);
    free(p->taken);
    free(p->ids);
    free(p->state);
    free(p);
}

// Zeroes the counters of every command and gives every thread enough scratch for any of them.
static int reserve(npk_pool *p, const npk_cmd *cmds, int64_t n) {
    int64_t need = 0, counters = n * p->threads;
    if (counters > p->taken_size) {
        free(p->taken);
        p->taken = malloc((size_t)counters * sizeof *p->taken);
        p->taken_size = p->taken ? counters : 0;
        if (!p->taken) return -1;
    }
    if (counters > 0) memset(p->taken, 0, (size_t)counters * sizeof *p->taken);
    for (int64_t i = 0; i < n; i++) {
        const npk_kernel *k = kernel_of(p, &cmds[i]);
        if (k->scratch) need = npk_max(need, k->scratch(&cmds[i]));
    }
    if (need <= p->scratch_each) return 0;
    // Whole pages, and one more between threads, so that no two write to one page or to addresses
    // that differ in their high bits only.
    need = npk_up(need, SCRATCH_ALIGN) + SCRATCH_ALIGN;
    free(p->scratch);
    p->scratch_each = 0;
    if (posix_memalign((void **)&p->scratch, SCRATCH_ALIGN, (size_t)(need * p->threads))) {
        p->scratch = NULL;
        return -1;
    }
    p->scratch_each = need - SCRATCH_ALIGN;
    for (int i = 0; i < p->threads; i++) p->state[i].scratch = p->scratch + i * need;
    return 0;
}

int npk_run(npk_pool *p, npk_cmd *cmds, int64_t n, const uint32_t *cancel, int trace) {
    if (reserve(p, cmds, n)) return 2;
    p->cmds = cmds;
    p->n = n;
    p->trace = trace;
    p->began = now();
    for (int i = 0; i < p->threads; i++) {
        p->state[i].cancel = cancel;
        p->state[i].threads = p->threads;
    }
    if (p->threads > 1) announce(p);
    walk(p, 0);
    return __atomic_load_n(cancel, __ATOMIC_RELAXED) != 0;
}

#ifdef NPK_WITH_ARMBF16
// Asks the operating system about the CPU.
static int has_armbf16(void) {
#if defined(__linux__)
    enum { BF16 = 1 << 14 }; // HWCAP2_BF16
    return (getauxval(AT_HWCAP2) & BF16) != 0;
#elif defined(__APPLE__)
    int has = 0;
    size_t size = sizeof has;
    return sysctlbyname("hw.optional.arm.FEAT_BF16", &has, &size, NULL, 0) == 0 && has;
#else
    return 0;
#endif
}
#endif

int npk_cpu_has(int table) {
    switch (table) {
    case NPK_GENERIC: return 1;
#if defined(__x86_64__)
    // These check CPUID and the register state that the operating system saves (XCR0).
    case NPK_AVX2:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
               __builtin_cpu_supports("f16c");
    case NPK_AVX512:
        return npk_cpu_has(NPK_AVX2) && __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512dq");
    case NPK_AVX512VNNI_INTEGER:
        return npk_cpu_has(NPK_AVX512) && __builtin_cpu_supports("avx512vnni");
    case NPK_AVX512BF16_PAIRS:
        return npk_cpu_has(NPK_AVX512) && __builtin_cpu_supports("avx512bf16");
#endif
#ifdef NPK_WITH_ARMBF16
    case NPK_ARMBF16: return has_armbf16();
#endif
    default: return 0;
    }
}

int64_t npk_pack_bytes(const npk_pool *p, const npk_cmd *c) {
    return table_of(p, c)->pack_bytes(c);
}

int64_t npk_peak_flops(int table) { return tables[table]->peak_flops; }

double npk_rate(int table, int64_t ns) {
    const npk_kernel *k = &tables[table]->of[NPK_PEAK];
    npk_cmd c = {.kind = NPK_PEAK, .table = table, .n = 1};
    uint32_t cancel = 0;
    npk_thread t = {.cancel = &cancel, .threads = 1};
    if (posix_memalign((void **)&t.scratch, SCRATCH_ALIGN, (size_t)k->scratch(&c))) return 0;
    struct timespec began, end;
    int64_t took, done = 0;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &began);
    do {
        for (int i = 0; i < 16; i++, done++) k->run(&t, &c, 0, 0);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
        took = (int64_t)(end.tv_sec - began.tv_sec) * 1000000000 + (end.tv_nsec - began.tv_nsec);
    } while (took < ns);
    free(t.scratch);
    return (double)(npk_peak_flops(table) * done) / (double)took * 1e9;
}

int64_t npk_attention_bytes(const npk_cmd *c) {
    int64_t partials = 0;
    for (int64_t i = 0; i < c->nsegs; i++) {
        const npk_seg *s = &c->segs[i];
        int64_t spans = (s->pos + s->rows + NPK_SPAN - 1) / NPK_SPAN;
        if (npk_by_spans(c, s) && spans > 1) partials += spans * s->rows * c->n;
    }
    return partials * (c->k + 2) * 4;
}

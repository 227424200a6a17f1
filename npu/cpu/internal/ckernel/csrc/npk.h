// The interface between Go and C: commands, element types and weight layouts.
//
// Go writes an array of commands into memory outside its heap and passes it down in one call; the
// threads of the pool walk the array together. The Go package kernel mirrors this file, and a test
// compares the two.

#ifndef NPK_H
#define NPK_H

#include <stddef.h>
#include <stdint.h>

// Element types of operands.
enum {
    NPK_F32,
    NPK_BF16,
    NPK_F16,
    NPK_I32,
    NPK_BF12X4,  // weights in BF12, in blocks of 4 rows: b is an npk_bf12
    NPK_BF12X16, // weights in BF12, in blocks of 16 rows, for the matrix unit: b is an npk_bf12
    NPK_Q8_0,    // from here on weights in groups of 16 rows: see grouped.h
    NPK_Q4_0,
    NPK_Q5_0,
    NPK_Q4_1,
    NPK_Q5_1,
    NPK_Q4_K,
    NPK_Q5_K,
    NPK_Q6_K
};

// Kinds of commands, and which fields of npk_cmd they read. at, bt, ct and yt are the types of a,
// b, c and y; lda to ldy their row strides in elements. A product (GEMM, GEMV, INPLACE) may be
// fused with the op that reads its result, which then is FP32: with PLUS y = c + product, with
// GATED y = silu(c) * product, c [m, n].
enum {
    NPK_PACK = 1,  // y = panels of a [m, k]; flags: WIDE, RIGHT
    NPK_GEMM,      // y [m, n] = a (panels of [m, k]) * b [n, k] transposed; flags: KN
    NPK_GEMV,      // y [m, n] = a [m, k] * b [n, k] transposed; m is at most NPK_GEMV_ROWS
    NPK_INPLACE,   // y [m, n] = a (panels of [m, k], WIDE) * b [n, k] transposed; k is even
    NPK_EMBED,     // y [m, n] = rows of b [k, n] listed in a [m] (I32)
    NPK_RMSNORM,   // y [m, k, n] = a [m, k, n] normalized over n, times b [n]; epsilon
    NPK_LAYERNORM, // y [m, n] = a [m, n] normalized, times b [n], plus c [n]; epsilon
    NPK_ROPE,      // y [m, n, k] = a [m, n heads, k] rotated by b [m, k] (cosines, sines); b_head
    NPK_KVWRITE,   // k of segs [n heads, capacity, k], rows pos.. = a [m, n, k]; bt is its type
    NPK_ATTENTION, // y [m, n heads, k] from q = a and k (bt, ldb) and v (ct, ldc) of segs;
                   // kv_heads, a_head, y_head, scale, scratch
    NPK_SILUMUL,   // y [m, n] = silu(a) * b
    NPK_GELU,      // y [m, n] = gelu(a); flags: TANH
    NPK_ADD,       // y [m, n] = a + b
    NPK_COPY,      // y = a; extents, a_strides, y_strides in elements
    NPK_READ,      // read n bytes from a, prefetching ahead: measures bandwidth
    NPK_PEAK,      // n products of one register tile from the L1 cache: measures arithmetic
    NPK_KINDS
};

enum {
    NPK_TANH = 1,
    NPK_KN = 2,
    NPK_RIGHT = 4,
    NPK_WIDE = 8,
    NPK_PLUS = 16,
    NPK_GATED = 32,
    NPK_FUSED = NPK_PLUS | NPK_GATED
};

// Tables of kernels, one or more for each instruction set. A command names the one that serves it;
// NPK_DEFAULT is the pool's own.
enum {
    NPK_DEFAULT,
    NPK_GENERIC,         // any machine
    NPK_GENERIC_INTEGER, // quantized GEMV as sums of integers
    NPK_ARMBF16,         // arm64 with BF16
    NPK_ARMBF16_PAIRS,   // products of BF16 pairs
    NPK_AVX2,
    NPK_AVX2_INTEGER,
    NPK_AVX512,
    NPK_AVX512_INTEGER,
    NPK_AVX512VNNI_INTEGER,
    NPK_AVX512BF16_PAIRS,
    NPK_AVX512BF16_QUANTS, // quantized GEMV as products of BF16 pairs
    NPK_AMX,               // products and attention in the matrix unit
    NPK_TABLES
};

// Rows of a tile of AMX, and elements of BF16 in one of them.
enum { NPK_TILE_ROWS = 16, NPK_TILE_K = 32 };

// Most rows of NPK_GEMV: beyond, packing pays.
enum { NPK_GEMV_ROWS = 16 };

// Most rows for which NPK_INPLACE is faster than NPK_GEMM: beyond, activations would be read from
// outer caches for every few rows of weights.
enum { NPK_INPLACE_ROWS = 256 };

// BF12 is bfloat16 with its exponent replaced by a code of four bits: the exponent's distance above
// the base of its row. In a matrix with many zeros, code 0 is exponent 0 instead, that of zeros and
// subnormal numbers. Four words of 16 bits become three. From its highest bit on, word i (0 to 2)
// has
//
//	the sign of number i, four bits of number 3, the code of number i, the mantissa of number i
//
// and the four bits are: in word 0 the sign and the low three bits of the mantissa, in word 1 the
// code, in word 2 the high four bits of the mantissa. So a number is a word under a mask, plus its
// base (in a matrix with zeros, only if its code is not 0). Numbers with other exponents, escapes,
// are listed with their positions.
//
// A 4-row block has three times 32 words for every 32 columns, one word per column: number i is row
// i.
//
// A 16-row block has three times 32 words for every 8 columns, two words per row: number i is
// columns 2i and 2i + 1. Four vectors of pairs come out of these, and sixteen out of 32 columns: a
// right operand of the matrix unit. A header precedes the words, so that a block is one stream.
enum {
    NPK_BLOCK4_ROWS = 4,
    NPK_BLOCK4_COLUMNS = 32,
    NPK_BLOCK16_ROWS = 16,
    NPK_BLOCK16_COLUMNS = 8,
    NPK_BF12_UNIT = 192 // bytes of three times 32 words
};

// Header of a 4-row block. Its escapes end where those of the next block begin.
typedef struct npk_block4 {
    uint32_t escapes; // index of the first
    uint8_t bases[NPK_BLOCK4_ROWS];
} npk_block4;

// Header of a 16-row block. Its escapes are repeated in here if there is room.
typedef struct npk_block16 {
    uint32_t escapes, count; // index of the first, and how many
    uint8_t bases[NPK_BLOCK16_ROWS];
    uint32_t here[];
} npk_block16;

// Bytes of blocks with rows of k elements, and of the header of a 16-row block. In normally
// distributed weights one in 8000 is an escape: four in a block of 2048 columns, whose header has
// room for ten.
static inline int64_t npk_block4_bytes(int64_t k) { return k / NPK_BLOCK4_COLUMNS * NPK_BF12_UNIT; }
static inline int64_t npk_block16_header(int64_t k) { return 64 * (1 + k / 4096); }
static inline int64_t npk_block16_bytes(int64_t k) {
    return npk_block16_header(k) + k / NPK_BLOCK16_COLUMNS * NPK_BF12_UNIT;
}
static inline int npk_block16_has_room(uint32_t escapes, int64_t k) {
    return escapes <= (npk_block16_header(k) - sizeof(npk_block16)) / sizeof(uint32_t);
}

// A matrix in BF12. An escape of a 4-row block has (column / 32 * 4 + row) * 32 + column % 32 in
// its upper half and the number in its lower half; the number's words mean nothing. An escape of a
// 16-row block is (column * 16 + row) * 256 + exponent; its words have the other bits. Escapes of
// 4-row blocks are in order of their units, those of 16-row blocks of their columns.
typedef struct npk_bf12 {
    const uint8_t *codes;    // of 4-row blocks, or 16-row blocks with their headers
    const npk_block4 *heads; // one more than there are 4-row blocks
    const uint32_t *escapes;
    int64_t zeros; // whether code 0 is exponent 0
} npk_bf12;

// One session's rows in a run, with that session's state for the command.
typedef struct npk_seg {
    int64_t row, rows; // first row in a and y, and how many
    int64_t pos;       // position of the first
    void *k, *v;
    int64_t khead, vhead; // elements from head to head
} npk_seg;

typedef struct npk_cmd {
    int32_t kind;
    int32_t barrier; // 1 to wait until every earlier command is complete
    int32_t at, bt, ct, yt;
    int32_t flags, table;
    int64_t m, n, k;
    int64_t lda, ldb, ldc, ldy;
    int64_t block; // first block of b, if it is BF12
    int64_t kv_heads;
    int64_t a_head, b_head, y_head; // elements from head to head
    int64_t ahead;                  // prefetch distance in bytes
    float epsilon, scale;
    int64_t extents[4], a_strides[4], y_strides[4];
    const void *a, *b, *c;
    void *y;
    void *scratch;
    const npk_seg *segs;
    int64_t nsegs;
    int64_t start, end; // ns since the run began; set if the run is traced
    int64_t pad[1];
    int64_t next[4]; // chunk counters by phase, zero before a run; in a cache line of their own
    int64_t pad2[4];
} npk_cmd;

typedef struct npk_kernels npk_kernels;
typedef struct npk_pool npk_pool;

// npk_register adds a table to those that pools use. Tables are registered before the first pool.
void npk_register(int table, const npk_kernels *kernels);

// npk_cpu_has reports whether the CPU and the operating system support the instructions of
// NPK_GENERIC, NPK_ARMBF16, NPK_AVX2, NPK_AVX512, NPK_AVX512VNNI_INTEGER or NPK_AVX512BF16_PAIRS.
int npk_cpu_has(int table);

// npk_machine_name returns the name of the machine's row in the table of machine.h.
const char *npk_machine_name(void);

// npk_open starts a pool of so many threads, counting the caller of npk_run, with a default table.
// It returns NULL if the system refuses a thread or memory.
npk_pool *npk_open(int threads, int table);

// npk_close joins the threads and frees the pool. No npk_run may be in progress.
void npk_close(npk_pool *p);

// npk_run executes commands. It returns 0, or 1 if *cancel became non-zero before the end, or 2 if
// there is no memory for scratch. Calls must not overlap.
int npk_run(npk_pool *p, npk_cmd *cmds, int64_t n, const uint32_t *cancel, int trace);

// npk_pack_bytes returns the size of the destination of an NPK_PACK.
int64_t npk_pack_bytes(const npk_pool *p, const npk_cmd *c);

// npk_attention_bytes returns the size of the scratch of an NPK_ATTENTION.
int64_t npk_attention_bytes(const npk_cmd *c);

// npk_rate times products of NPK_PEAK on the calling thread for about so many ns of its own time.
// It returns floating-point operations per second, or 0 if there is no memory.
double npk_rate(int table, int64_t ns);

// npk_peak_flops returns the floating-point operations of one product of NPK_PEAK.
int64_t npk_peak_flops(int table);

#endif

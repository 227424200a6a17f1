// The C half of the software device: what a command is, and what Go calls.
//
// Go writes an array of commands into memory of its own making (never the Go heap) and passes it down in one call; the threads of the pool
// walk the array together. The layouts of npk_cmd and npk_seg are mirrored by the Go types command and segment, and a test compares them.

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
    NPK_BF12,   // BF16 in twelve bits, in quads: b of NPK_GEMM, NPK_GEMV and NPK_INPLACE is an npk_bf12
    NPK_STRIPS, // the same in strips, for BF16 activations: b of NPK_GEMM and, where m is 1, of NPK_GEMV, with TILES
    NPK_Q8_0, // from here on weights in groups (grouped.h): b of NPK_GEMM, of NPK_GEMV with BF16 activations, and of NPK_EMBED
    NPK_Q4_0,
    NPK_Q5_0,
    NPK_Q4_1,
    NPK_Q5_1,
    NPK_Q4_K,
    NPK_Q5_K,
    NPK_Q6_K
};

// Kinds of commands, and which fields of npk_cmd they read. at, bt, ct and yt are the types of a, b, c and y; lda to ldy their distances from row
// to row in elements. Products (GEMM, GEMV, INPLACE) may go on to another op with their results, which then are FP32: with PLUS y = c + product, with GATED
// y = silu(c) * product, c [m, n].
enum {
    NPK_PACK = 1,  // y = panels of a [m, k]; flags: PAIRS, TILES, WIDE
    NPK_GEMM,      // y [m, n] = a (panels of [m, k]) * b [n, k] transposed; flags: PAIRS, KN, TILES
    NPK_GEMV,      // y [m, n] = a [m, k] * b [n, k] transposed; m <= NPK_GEMV_ROWS; flags: UNITS, TILES
    NPK_INPLACE,   // y [m, n] = a (panels of [m, k], BF16, with PAIRS and WIDE) * b [n, k] transposed, BF16 or BF12; k is even
    NPK_EMBED,     // y [m, n] = rows of b [k, n] listed in a [m] (I32)
    NPK_RMSNORM,   // y [m, k, n] = a [m, k, n] normalised over n, times b [n]; f0 epsilon
    NPK_LAYERNORM, // y [m, n] = a [m, n] normalised, times b [n], plus c [n]; f0 epsilon
    NPK_ROPE,      // y [m, n, k] = a [m, n heads, k] rotated by b [m, k] (cosines, then sines); p0: from head to head in b
    NPK_KVWRITE,   // segs' k [n heads, capacity, k], rows pos.. = a [m, n, k]; bt is its type
    NPK_ATTENTION, // y [m, n heads, k] from q = a and segs' k (bt, ldb) and v (ct, ldc) of p0 heads; p1, p2: from head to head in a, y;
                   // f0 scale; flags: TILES, of keys and values of BF16 and k a multiple of 32; scratch
    NPK_SILUMUL,   // y [m, n] = silu(a) * b
    NPK_GELU,      // y [m, n] = gelu(a); flags: TANH
    NPK_ADD,       // y [m, n] = a + b
    NPK_COPY,      // extents p0..3, strides of a p4..7, of y p8..11, in elements
    NPK_READ,      // read n bytes from a: measures bandwidth; p0 how many bytes ahead memory is asked for, or 0
    NPK_PEAK,      // n products of one tile from the nearest cache: measures arithmetic; flags: PAIRS, TILES
    NPK_KINDS
};

enum { NPK_PAIRS = 1, NPK_TANH = 2, NPK_KN = 4, NPK_TILES = 8, NPK_UNITS = 16, NPK_WIDE = 32, NPK_PLUS = 64, NPK_GATED = 128, NPK_JOINED = NPK_PLUS | NPK_GATED };

// Rows of a tile of AMX, and elements of BF16 in one of them.
enum { NPK_TILE_ROWS = 16, NPK_TILE_K = 32 };

// Most rows that NPK_GEMV takes: beyond, packing pays.
enum { NPK_GEMV_ROWS = 16 };

// Most rows for which NPK_INPLACE is faster than NPK_GEMM: beyond, activations would come from afar for every few rows of weights.
enum { NPK_INPLACE_ROWS = 256 };

// BF12: bfloat16 whose exponent has a code of four bits, which is how much it is above its row's base. In a matrix with zeros the code 0 is the exponent 0 instead, that of
// zeros and subnormal numbers. Four words of 16 bits become three. From its highest bit on, word i (0 to 2) has
//
//	the sign of number i, four bits of number 3, the code of number i's exponent in four, the mantissa of number i in seven
//
// and the four bits are: of word 0 the sign and the lower three bits of the mantissa, of word 1 the code, of word 2 the upper four bits of the mantissa. So a number
// is what a mask leaves of a word, plus its base, with zeros where the code is not 0. Those with other exponents, escapes, are listed with their places.
//
// A quad is four rows. Of every 32 columns of it lie, behind one another, three times 32 words, one for each column: number i is of row i.
//
// A strip is sixteen rows. Of every 8 columns of it lie three times 32 words, two for each row: number i is of columns 2i and 2i + 1. So four vectors of pairs come of them,
// and sixteen of 32 columns: a right tile of the matrix unit. A head lies before the words: one cache line that is read elsewhere for every strip, its bases or its escapes,
// cost a virtual Xeon 5 to 7 % of its bandwidth.
enum { NPK_BF12_ROWS = 4, NPK_BF12_COLUMNS = 32, NPK_BF12_UNIT = 192, NPK_STRIP_ROWS = 16, NPK_STRIP_COLUMNS = 8 };

// The escapes of a quad begin at that of the list, and end where the next one's do.
typedef struct npk_quad {
    uint32_t escapes;
    uint8_t bases[NPK_BF12_ROWS];
} npk_quad;

// The head of a strip has so many escapes, that of the list and those behind it, once more, if there is room.
typedef struct npk_strip {
    uint32_t escapes, count;
    uint8_t bases[NPK_STRIP_ROWS];
    uint32_t here[];
} npk_strip;

// Bytes of a strip's head, of a quad and of a strip of rows of k elements. Of weights spread like a bell one in 8000 is an escape: four of a strip of 2048 columns, where
// there is room for ten.
static inline int64_t npk_strip_head(int64_t k) { return 64 * (1 + k / 4096); }
static inline int npk_strip_has_room(uint32_t escapes, int64_t k) { return escapes <= (npk_strip_head(k) - sizeof(npk_strip)) / sizeof(uint32_t); }
static inline int64_t npk_quad_bytes(int64_t k) { return k / NPK_BF12_COLUMNS * NPK_BF12_UNIT; }
static inline int64_t npk_strip_bytes(int64_t k) { return npk_strip_head(k) + k / NPK_STRIP_COLUMNS * NPK_BF12_UNIT; }

// A matrix in BF12. What p0 of a command says is its first quad or strip of it. An escape of a quad has in the upper half (column / 32 * 4 + row) * 32 + column % 32, in the
// lower half the number; what lies there means nothing. One of a strip is (column * 16 + row) * 256 + exponent; the rest of the number lies where it belongs. Those of quads are in
// order of their 32 columns, those of strips of their columns.
typedef struct npk_bf12 {
    const uint8_t *codes;  // of quads, or strips with their heads
    const npk_quad *heads; // one more than there are quads, for its escapes
    const uint32_t *escapes;
    int64_t zeros; // whether the code 0 is the exponent 0
} npk_bf12;

// One session's rows in a run, with that session's state for the command at hand.
typedef struct npk_seg {
    int64_t row, rows;    // first row in a and y, and how many
    int64_t pos;          // position of the first
    void *k, *v;
    int64_t khead, vhead; // elements from head to head
} npk_seg;

typedef struct npk_cmd {
    int32_t kind;
    int32_t barrier; // wait until every earlier command is complete
    int32_t at, bt, ct, yt;
    int32_t flags, pad;
    int64_t m, n, k;
    int64_t lda, ldb, ldc, ldy;
    int64_t p[12];
    float f[4];
    const void *a, *b, *c;
    void *y;
    void *scratch;
    const npk_seg *segs;
    int64_t nsegs;
    int64_t start, end; // ns since the run began, when traced
    int64_t pad2[6];
    int64_t next[4];    // chunk counters of the phases, where threads share them: zero before a run; in a cache line of their own
    int64_t pad3[4];
} npk_cmd;

// The kernel variants, slowest first. That of AMX has kernels of its own for commands with the flag TILES, and those of AVX-512 for all else.
enum { NPK_GENERIC = 0, NPK_ARMBF16, NPK_AVX2, NPK_AVX512, NPK_AVX512BF16, NPK_AMX, NPK_VARIANTS };

// Beside them, for sums of whole numbers alone: AVX-512 with VNNI, whose multiply-add of 16-bit numbers is one instruction.
enum { NPK_VNNI = NPK_VARIANTS };

// npk_usable says whether this machine and its operating system can execute a variant, or NPK_VNNI. Of AMX it is found out by trying, in a child process, the first time.
int npk_usable(int variant);

typedef struct npk_pool npk_pool;

// npk_open starts a pool of that many threads, the caller of npk_run counted; NULL when the system refuses a thread or memory.
npk_pool *npk_open(int threads);

// npk_close joins the threads and frees the pool. No npk_run may be in progress.
void npk_close(npk_pool *p);

// npk_run executes the commands with the kernels of a usable variant, and those of another, or of NPK_VNNI, for products that are sums of whole numbers. It returns 0, or 1 when *cancel
// was non-zero before the end, or 2 when scratch memory is refused. One call at a time.
int npk_run(npk_pool *p, int variant, int integer, npk_cmd *cmds, int64_t n, const uint32_t *cancel, int trace);

// npk_pack_bytes is the size of NPK_PACK's destination.
int64_t npk_pack_bytes(int variant, int64_t m, int64_t k, int flags);

// npk_attention_bytes is the scratch that an attention command needs.
int64_t npk_attention_bytes(const npk_cmd *c);

// npk_rate times products of NPK_PEAK on the calling thread for about so many ns of its own time, and gives floating-point operations per second;
// 0 when memory is refused. Other work on the machine hardly changes it.
double npk_rate(int variant, int flags, int64_t ns);

// npk_peak_flops is the arithmetic of one product of NPK_PEAK.
int64_t npk_peak_flops(int variant, int flags);

#endif

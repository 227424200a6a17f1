// GEMM in the matrix unit. A chunk is some column tiles and row tiles of y whose sums all fit L2.
// For one block of K after another, panel after panel of the weights (tiles_weights.h) is
// multiplied with all rows. A panel is converted while the first rows are multiplied and stays in a
// near cache for the others; activations of the block come from L2.
//
// With few rows the product is memory-bound. A panel is one column tile over many steps, multiplied
// with four row tiles at a time, so that long runs are read. If there are up to four row tiles, a
// column tile is read to its end before the next, and its tiles are reused at once. With many rows,
// two column tiles are multiplied with two row tiles: each loaded tile is used twice.
//
// Every sum goes over K in order, in steps of 32, however many rows and columns there are.

enum {
    ISA(CTILES) = 32,      // in a chunk at most
    ISA(RTILES) = 32,      // in a chunk at most
    ISA(LAG) = 4,          // steps from converting a tile to multiplying it
    ISA(FEW_AHEAD) = 8192, // prefetch distance in bytes if there are few rows
};

// Operands of a product: weights left of the activations, or right of them, as one term or as two
// with adjacent tiles.
enum { ISA(WEIGHTS_LEFT), ISA(WEIGHTS_RIGHT), ISA(WEIGHTS_TERMS) };

// One operand: strides from tile to tile of y, and from step to step.
typedef struct ISA(operand) {
    const char *at;
    int64_t next, step;
    int64_t mask; // of weights: the mask of a step's position
} ISA(operand);

// Work that overlaps a product: conversion of the current panel and of the next one, each of which
// may be NULL, and a prefetch, which may be empty.
typedef struct ISA(overlap) {
    ISA(panel) *own, *then;
    ISA(ahead) ahead;
} ISA(overlap);

// Adds to tiles of sums, one column tile by up to four row tiles, or two by two, over a number of
// steps. Those of a column tile are adjacent, those of the second one next bytes further. Weights
// come from a near cache and stay there; activations and sums are loaded as data that is not needed
// again soon. Numbers and how are constants wherever this is inlined.
INLINE void ISA(multiply)(const int how, const int ctiles, const int rows, int64_t steps,
                          ISA(operand) w, ISA(operand) x, char *sums, int64_t next, int first,
                          ISA(overlap) *side) {
    const int terms = how == ISA(WEIGHTS_TERMS) ? 2 : 1;
#define SUM(i) (sums + (ctiles == 1 ? (i) * ISA(TILE) : (i) / 2 * next + (i) % 2 * ISA(TILE)))
#define HAS(i) (ctiles == 1 ? rows > (i) : rows > (i) % 2)
#define EACH_SUM(X) X(0) X(1) X(2) X(3)
#define ZERO(i)                                                                                    \
    if (HAS(i)) _tile_zero(i);
#define LOAD(i)                                                                                    \
    if (HAS(i)) _tile_stream_loadd(i, SUM(i), 64);
#define STORE(i)                                                                                   \
    if (HAS(i)) _tile_stored(i, SUM(i), 64);
#define ROWS(tile, i)                                                                              \
    if (rows > (i)) _tile_stream_loadd(tile, x.at + (i) * x.next + s * x.step, 64);
#define ADD(sum, weights, activations)                                                             \
    if (HAS(sum)) {                                                                                \
        if (how == ISA(WEIGHTS_LEFT)) _tile_dpbf16ps(sum, weights, activations);                   \
        else _tile_dpbf16ps(sum, activations, weights);                                            \
    }
    COMPILER_BARRIER();
    if (first) { EACH_SUM(ZERO) } else { EACH_SUM(LOAD) }
    for (int64_t s = 0; s < steps; s++) {
        if (side->own) // two at a time until they are LAG ahead
            for (int i = 0; i < 2 && side->own->made < npk_min(steps, s + 1 + ISA(LAG)); i++)
                ISA(make_step)(side->own);
        if (side->then && s + ISA(LAG) >= steps) ISA(make_step)(side->then);
        ISA(prefetch_step)(&side->ahead);
        COMPILER_BARRIER();
#pragma GCC unroll 2
        for (int i = 0; i < terms; i++) {
            _tile_loadd(4, w.at + (s & w.mask) * w.step + i * ISA(TILE), 64);
            if (ctiles > 1)
                _tile_loadd(5, w.at + w.next + (s & w.mask) * w.step + i * ISA(TILE), 64);
            ROWS(6, 0)
            ADD(0, 4, 6)
            if (ctiles > 1) ADD(2, 5, 6)
            ROWS(7, 1)
            ADD(1, 4, 7)
            if (ctiles > 1) ADD(3, 5, 7)
            if (ctiles > 1) continue;
            ROWS(6, 2)
            ADD(2, 4, 6)
            ROWS(7, 3)
            ADD(3, 4, 7)
        }
    }
    EACH_SUM(STORE)
    COMPILER_BARRIER();
#undef SUM
#undef HAS
#undef EACH_SUM
#undef ZERO
#undef LOAD
#undef STORE
#undef ROWS
#undef ADD
}

TARGET static void ISA(multiply_any)(int how, int64_t ctiles, int64_t rows, int64_t steps,
                                     ISA(operand) w, ISA(operand) x, char *sums, int64_t next,
                                     int first, ISA(overlap) *side) {
    switch (how * 8 + (ctiles - 1) * 4 + rows - 1) {
#define MULTIPLY(HOW, CTILES, ROWS)                                                                \
    case ISA(HOW) * 8 + (CTILES - 1) * 4 + ROWS - 1:                                               \
        ISA(multiply)(ISA(HOW), CTILES, ROWS, steps, w, x, sums, next, first, side);               \
        break;
#define EACH_MULTIPLY(HOW)                                                                         \
    MULTIPLY(HOW, 1, 1)                                                                            \
    MULTIPLY(HOW, 1, 2)                                                                            \
    MULTIPLY(HOW, 1, 3) MULTIPLY(HOW, 1, 4) MULTIPLY(HOW, 2, 1) MULTIPLY(HOW, 2, 2)
        EACH_MULTIPLY(WEIGHTS_LEFT)
        EACH_MULTIPLY(WEIGHTS_RIGHT)
        EACH_MULTIPLY(WEIGHTS_TERMS)
#undef EACH_MULTIPLY
#undef MULTIPLY
    }
}

// How a product is cut into chunks, and a chunk into calls of multiply.
typedef struct ISA(cut) {
    int64_t ctiles, groups; // of a chunk, and how many chunks that makes
    int64_t rtiles, parts;  // of a chunk, and how many chunks that makes
    int64_t abreast, rows;  // column tiles and row tiles of a call
} ISA(cut);

INLINE ISA(cut) ISA(split_of)(const npk_cmd *c, int threads) {
    int64_t ctiles = (c->n + ISA(SIDE) - 1) / ISA(SIDE),
            rtiles = (c->m + ISA(SIDE) - 1) / ISA(SIDE), want = 4 * threads;
    ISA(cut)
    p = {ISA(CTILES),
         0,
         ISA(RTILES),
         (rtiles + ISA(RTILES) - 1) / ISA(RTILES),
         rtiles <= ISA(FEW_RTILES) ? 1 : 2,
         rtiles <= ISA(FEW_RTILES) ? 4 : 2};
    if (threads == 1) want = 1;
    while (p.ctiles > 2 && (ctiles + p.ctiles - 1) / p.ctiles * p.parts < want) p.ctiles /= 2;
    p.groups = (ctiles + p.ctiles - 1) / p.ctiles;
    // With few columns rows are cut too, at the price of converting the weights again for each cut.
    while (p.groups * p.parts < want && rtiles / (p.parts + 1) >= ISA(FEW_RTILES)) p.parts++;
    p.rtiles = npk_up((rtiles + p.parts - 1) / p.parts, p.rows);
    p.parts = (rtiles + p.rtiles - 1) / p.rtiles;
    return p;
}

TARGET static int64_t ISA(gemm_tiles_chunks)(const npk_cmd *c, int phase, int threads) {
    (void)phase;
    ISA(cut) p = ISA(split_of)(c, threads);
    return p.groups * p.parts;
}

INLINE int ISA(tile_terms)(const npk_cmd *c) {
    return c->bt >= NPK_Q8_0 && (npk_makes_floats(c) || c->yt != NPK_BF16) ? 2 : 1;
}

INLINE int64_t ISA(panel_bytes)(const npk_cmd *c) {
    return 2 * ISA(tile_terms)(c) *
           ISA(block_steps)(ISA(tile_steps)(c->k), (c->m + ISA(SIDE) - 1) / ISA(SIDE)) *
           (int64_t)ISA(TILE);
}

TARGET static int64_t ISA(gemm_tiles_scratch)(const npk_cmd *c) {
    return 2 * ISA(panel_bytes)(c) + ISA(CTILES) * (ISA(RTILES) + 1) * (int64_t)ISA(TILE);
}

// Stores the sums of a chunk, one row tile after another, because rows may be so far apart that
// they share cache sets. Those of fused products become rows first, in the order of the other
// operand.
INLINE void ISA(put_sums)(const npk_cmd *c, const char *sums, int64_t next, int64_t rtile0,
                          int64_t rtiles, int64_t ctile0, int64_t ctiles, int left, float *rows) {
    const int64_t ld = ctiles * ISA(SIDE), column = ctile0 * ISA(SIDE),
                  columns = npk_min(ld, c->n - column);
    for (int64_t b = 0; b < rtiles; b++, sums += ISA(TILE)) {
        const int64_t row = (rtile0 + b) * ISA(SIDE);
        if (!(c->flags & NPK_FUSED)) {
            for (int64_t s = 0; s < ctiles; s++)
                ISA(put_tile)(c, sums + s * next, row, column + s * ISA(SIDE), left);
            continue;
        }
        if (b + 1 < rtiles)
            ISA(fuse_ahead)(c, row + ISA(SIDE), npk_min(ISA(SIDE), c->m - row - ISA(SIDE)), column,
                            columns);
        for (int64_t s = 0; s < ctiles; s++)
            ISA(store_tile)(rows + s * ISA(SIDE), ld, sums + s * next, left);
        ISA(put_block)(c, row, npk_min(ISA(SIDE), c->m - row), column, columns, rows, ld);
    }
}

TARGET static void ISA(gemm_tiles)(npk_thread *t, const npk_cmd *c, int phase, int64_t chunk) {
    (void)phase;
    const ISA(cut) cut = ISA(split_of)(c, t->threads);
    const int64_t steps = ISA(tile_steps)(c->k), ctiles = (c->n + ISA(SIDE) - 1) / ISA(SIDE),
                  rtiles = (c->m + ISA(SIDE) - 1) / ISA(SIDE), kb = ISA(block_steps)(steps, rtiles);
    const int64_t ctile0 = chunk / cut.parts * cut.ctiles,
                  end = npk_min(ctiles, ctile0 + cut.ctiles),
                  across = (end - ctile0 + cut.abreast - 1) / cut.abreast;
    const int64_t rtile0 = chunk % cut.parts * cut.rtiles,
                  nrtiles = npk_min(cut.rtiles, rtiles - rtile0),
                  calls = (nrtiles + cut.rows - 1) / cut.rows;
    const int64_t ranges = (steps + kb - 1) / kb, panels = ranges * across,
                  next = nrtiles * ISA(TILE);
    const int once = calls == 1, terms = ISA(tile_terms)(c), left = c->bt == NPK_BF16,
              how = left         ? ISA(WEIGHTS_LEFT)
                    : terms == 1 ? ISA(WEIGHTS_RIGHT)
                                 : ISA(WEIGHTS_TERMS);
    char *weights = t->scratch, *sums = weights + 2 * ISA(panel_bytes)(c);
    t->prepared = NULL;
    ISA(tiles_begin)();
    ISA(panel) panel[2];
    // a panel is started while the one before is multiplied, the first one before all
    for (int64_t i = -1; i < panels && !npk_cancelled(t); i++) {
        ISA(panel) *own = &panel[i & 1], *then = &panel[(i + 1) & 1];
        const int64_t ctile = ctile0 + (once ? (i + 1) / ranges : (i + 1) % across) * cut.abreast,
                      from = (once ? (i + 1) % ranges : (i + 1) / across) * kb,
                      more = i + 1 < panels;
        if (more)
            ISA(panel_begin)(then, c, ctile, npk_min(cut.abreast, end - ctile), from,
                             npk_min(kb, steps - from), terms, once,
                             weights + ((i + 1) & 1) * ISA(panel_bytes)(c));
        if (i < 0) continue;
        const ISA(operand)
            w = {own->tiles, own->room * terms * ISA(TILE), terms * ISA(TILE), own->mask};
        char *to = sums + (own->ctile - ctile0) * next;
        for (int64_t b = 0, call = 0; b < nrtiles; b += cut.rows, call++) {
            const ISA(operand)
                x = {(const char *)c->a + ISA(packed_at)(steps, rtiles, rtile0 + b, own->from),
                     own->steps * ISA(TILE), ISA(TILE), 0};
            ISA(overlap)
            side = {call == 0 ? own : NULL, more && call == calls - 1 ? then : NULL, {0}};
            // one stream, which continues in the next column tile
            if (once && c->bt == NPK_BF12X16) {
                side.ahead = ISA(prefetch_of)(own, 0, 1, own->steps);
                side.ahead.at += ISA(FEW_AHEAD);
            } else if (more) side.ahead = ISA(prefetch_of)(then, call, calls, own->steps);
            ISA(multiply_any)(how, own->ctiles, npk_min(cut.rows, nrtiles - b), own->steps, w, x,
                              to + b * ISA(TILE), next, own->from == 0, &side);
        }
    }
    _tile_release();
    if (npk_cancelled(t)) return; // some sums may not have been computed
    ISA(put_sums)(c, sums, next, rtile0, nrtiles, ctile0, end - ctile0, left,
                  (float *)(sums + ISA(CTILES) * ISA(RTILES) * (int64_t)ISA(TILE)));
}

enum { ISA(PEAK_STEPS) = 256 };

// Measures arithmetic alone: two by two tiles again and again, from the L1 cache.
TARGET static int64_t ISA(peak_tiles_chunks)(const npk_cmd *c, int phase, int threads) {
    (void)phase, (void)threads;
    return c->n;
}

TARGET static int64_t ISA(peak_tiles_scratch)(const npk_cmd *c) {
    (void)c;
    return 8 * (int64_t)ISA(TILE);
}

TARGET static void ISA(peak_tiles)(npk_thread *t, const npk_cmd *c, int phase, int64_t chunk) {
    (void)phase, (void)chunk;
    char *a = t->scratch, *b = a + 2 * ISA(TILE), *y = b + 2 * ISA(TILE);
    if (t->prepared != c) memset(a, 0, (size_t)ISA(peak_tiles_scratch)(c));
    t->prepared = c;
    // the same tiles in every step
    const ISA(operand) w = {a, ISA(TILE), 0, 0}, x = {b, ISA(TILE), 0, 0};
    ISA(overlap) nothing = {0};
    ISA(tiles_begin)();
    ISA(multiply)(ISA(WEIGHTS_LEFT), 2, 2, ISA(PEAK_STEPS), w, x, y, 2 * ISA(TILE), 1, &nothing);
    _tile_release();
}

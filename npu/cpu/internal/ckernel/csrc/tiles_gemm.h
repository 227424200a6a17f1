// Products in the matrix unit. A chunk is some strips of columns of y and some sixteens of its rows, whose sums all fit the second cache. For a block of K after the
// other, piece after piece of the weights (tiles_weights.h) is multiplied with all rows. It becomes tiles while the first of them are multiplied, and stays in a near cache
// for the others; what these rows have of the block comes from the second cache.
//
// Where rows are few, a piece is one strip over many steps, which is multiplied with four sixteens of rows at a time: long stretches are read, and memory is what the product
// waits for. Up to four sixteens read a strip to its end before the next, and its tiles make room for others at once. Where rows are many, two strips are multiplied with two
// sixteens: a tile of weights comes from a near cache and is used twice, and so is one of activations.
//
// Every sum goes over K in order, in steps of 32, whatever the numbers of rows and columns are.

enum {
    ISA(STRIPS) = 32,      // in a chunk at most
    ISA(BLOCKS) = 32,      // sixteens of rows in a chunk at most
    ISA(LAG) = 4,          // steps from making a tile to multiplying it
    ISA(FEW_AHEAD) = 8192, // how many bytes ahead memory is asked for where rows are few
};

// How the operands of a product lie: the weights left of the activations; or right of them, as one or two numbers whose tiles follow each other.
enum { ISA(WEIGHTS_LEFT), ISA(WEIGHTS_RIGHT), ISA(WEIGHTS_TERMS) };

// One operand of a product: what lies from strip to strip, or from sixteen rows to the next, and from step to step.
typedef struct ISA(operand) {
    const char *at;
    int64_t next, step;
    int64_t mask; // of weights: what of a step's number counts
} ISA(operand);

// What is done beside a product: two pieces that become tiles, the one that is multiplied and the next, and what memory is asked for. All may be missing.
typedef struct ISA(overlap) {
    ISA(panel) *own, *then;
    ISA(ahead) ahead;
} ISA(overlap);

// Tiles of sums, one strip by up to four sixteens of rows, or two by two, over a number of steps. Those of a strip lie one behind the other, those of the
// second strip next bytes further. Weights come from a near cache and stay there; activations and sums are loaded as what is not needed again soon. The numbers and how are
// constants wherever this is inlined.
INLINE void ISA(multiply)(const int how, const int strips, const int rows, int64_t steps, ISA(operand) w, ISA(operand) x, char *sums, int64_t next, int first,
                          ISA(overlap) *side) {
    const int terms = how == ISA(WEIGHTS_TERMS) ? 2 : 1;
#define SUM(i) (sums + (strips == 1 ? (i) * ISA(TILE) : (i) / 2 * next + (i) % 2 * ISA(TILE)))
#define HAS(i) (strips == 1 ? rows > (i) : rows > (i) % 2)
#define EACH_SUM(X) X(0) X(1) X(2) X(3)
#define ZERO(i) if (HAS(i)) _tile_zero(i);
#define LOAD(i) if (HAS(i)) _tile_stream_loadd(i, SUM(i), 64);
#define STORE(i) if (HAS(i)) _tile_stored(i, SUM(i), 64);
#define ROWS(tile, i) if (rows > (i)) _tile_stream_loadd(tile, x.at + (i) * x.next + s * x.step, 64);
#define ADD(sum, weights, activations)                                                                                                    \
    if (HAS(sum)) {                                                                                                                       \
        if (how == ISA(WEIGHTS_LEFT)) _tile_dpbf16ps(sum, weights, activations);                                                          \
        else _tile_dpbf16ps(sum, activations, weights);                                                                                   \
    }
    COMPILER_BARRIER();
    if (first) { EACH_SUM(ZERO) } else { EACH_SUM(LOAD) }
    for (int64_t s = 0; s < steps; s++) {
        if (side->own) // two at a time until they are so far ahead
            for (int i = 0; i < 2 && side->own->made < npk_min(steps, s + 1 + ISA(LAG)); i++) ISA(make_step)(side->own);
        if (side->then && s + ISA(LAG) >= steps) ISA(make_step)(side->then);
        ISA(prefetch_step)(&side->ahead);
        COMPILER_BARRIER();
#pragma GCC unroll 2
        for (int i = 0; i < terms; i++) {
            _tile_loadd(4, w.at + (s & w.mask) * w.step + i * ISA(TILE), 64);
            if (strips > 1) _tile_loadd(5, w.at + w.next + (s & w.mask) * w.step + i * ISA(TILE), 64);
            ROWS(6, 0)
            ADD(0, 4, 6)
            if (strips > 1) ADD(2, 5, 6)
            ROWS(7, 1)
            ADD(1, 4, 7)
            if (strips > 1) ADD(3, 5, 7)
            if (strips > 1) continue;
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

TARGET static void ISA(multiply_any)(int how, int64_t strips, int64_t rows, int64_t steps, ISA(operand) w, ISA(operand) x, char *sums, int64_t next, int first,
                                     ISA(overlap) *side) {
    switch (how * 8 + (strips - 1) * 4 + rows - 1) {
#define MULTIPLY(HOW, STRIPS, ROWS)                                                                                                       \
    case ISA(HOW) * 8 + (STRIPS - 1) * 4 + ROWS - 1: ISA(multiply)(ISA(HOW), STRIPS, ROWS, steps, w, x, sums, next, first, side); break;
#define EACH_MULTIPLY(HOW) MULTIPLY(HOW, 1, 1) MULTIPLY(HOW, 1, 2) MULTIPLY(HOW, 1, 3) MULTIPLY(HOW, 1, 4) MULTIPLY(HOW, 2, 1) MULTIPLY(HOW, 2, 2)
        EACH_MULTIPLY(WEIGHTS_LEFT)
        EACH_MULTIPLY(WEIGHTS_RIGHT)
        EACH_MULTIPLY(WEIGHTS_TERMS)
#undef EACH_MULTIPLY
#undef MULTIPLY
    }
}

// How a product is cut into chunks, and a chunk into calls of multiply.
typedef struct ISA(cut) {
    int64_t strips, groups; // of a chunk, and how many chunks that makes
    int64_t blocks, parts;  // sixteens of rows of a chunk, and how many chunks that makes
    int64_t abreast, rows;  // strips and sixteens of rows of a call
} ISA(cut);

INLINE ISA(cut) ISA(split_of)(const npk_cmd *c, int threads) {
    int64_t strips = (c->n + ISA(SIDE) - 1) / ISA(SIDE), blocks = (c->m + ISA(SIDE) - 1) / ISA(SIDE), want = 4 * threads;
    ISA(cut) p = {ISA(STRIPS), 0, ISA(BLOCKS), (blocks + ISA(BLOCKS) - 1) / ISA(BLOCKS), blocks <= ISA(FEW) ? 1 : 2, blocks <= ISA(FEW) ? 4 : 2};
    if (threads == 1) want = 1;
    while (p.strips > 2 && (strips + p.strips - 1) / p.strips * p.parts < want) p.strips /= 2;
    p.groups = (strips + p.strips - 1) / p.strips;
    // Few columns: cut rows too, at the price of preparing the weights again for each cut.
    while (p.groups * p.parts < want && blocks / (p.parts + 1) >= ISA(FEW)) p.parts++;
    p.blocks = npk_up((blocks + p.parts - 1) / p.parts, p.rows);
    p.parts = (blocks + p.blocks - 1) / p.blocks;
    return p;
}

TARGET static int64_t ISA(gemm_tiles_chunks)(const npk_cmd *c, int phase, int threads) {
    (void)phase;
    ISA(cut) p = ISA(split_of)(c, threads);
    return p.groups * p.parts;
}

INLINE int ISA(tile_terms)(const npk_cmd *c) { return c->bt >= NPK_Q8_0 && (npk_makes_floats(c) || c->yt != NPK_BF16) ? 2 : 1; }

INLINE int64_t ISA(panel_bytes)(const npk_cmd *c) {
    return 2 * ISA(tile_terms)(c) * ISA(block_steps)(ISA(tile_steps)(c->k), (c->m + ISA(SIDE) - 1) / ISA(SIDE)) * (int64_t)ISA(TILE);
}

TARGET static int64_t ISA(gemm_tiles_scratch)(const npk_cmd *c) { return 2 * ISA(panel_bytes)(c) + ISA(STRIPS) * (ISA(BLOCKS) + 1) * (int64_t)ISA(TILE); }

// Puts the sums of a chunk: sixteen rows of y after the other, all that the chunk has of them, for rows may lie so far apart that they share cache sets. Those that go on to be something
// else become rows first: what they are joined with is read along its own.
INLINE void ISA(put_sums)(const npk_cmd *c, const char *sums, int64_t next, int64_t block0, int64_t blocks, int64_t strip0, int64_t strips, int left, float *rows) {
    const int64_t ld = strips * ISA(SIDE), column = strip0 * ISA(SIDE), columns = npk_min(ld, c->n - column);
    for (int64_t b = 0; b < blocks; b++, sums += ISA(TILE)) {
        const int64_t row = (block0 + b) * ISA(SIDE);
        if (!(c->flags & NPK_FUSED)) {
            for (int64_t s = 0; s < strips; s++) ISA(put_tile)(c, sums + s * next, row, column + s * ISA(SIDE), left);
            continue;
        }
        if (b + 1 < blocks) ISA(fuse_ahead)(c, row + ISA(SIDE), npk_min(ISA(SIDE), c->m - row - ISA(SIDE)), column, columns);
        for (int64_t s = 0; s < strips; s++) ISA(store_tile)(rows + s * ISA(SIDE), ld, sums + s * next, left);
        ISA(put_block)(c, row, npk_min(ISA(SIDE), c->m - row), column, columns, rows, ld);
    }
}

TARGET static void ISA(gemm_tiles)(npk_thread *t, const npk_cmd *c, int phase, int64_t chunk) {
    (void)phase;
    const ISA(cut) cut = ISA(split_of)(c, t->threads);
    const int64_t steps = ISA(tile_steps)(c->k), strips = (c->n + ISA(SIDE) - 1) / ISA(SIDE), blocks = (c->m + ISA(SIDE) - 1) / ISA(SIDE), kb = ISA(block_steps)(steps, blocks);
    const int64_t strip0 = chunk / cut.parts * cut.strips, end = npk_min(strips, strip0 + cut.strips), across = (end - strip0 + cut.abreast - 1) / cut.abreast;
    const int64_t block0 = chunk % cut.parts * cut.blocks, nblocks = npk_min(cut.blocks, blocks - block0), calls = (nblocks + cut.rows - 1) / cut.rows;
    const int64_t ranges = (steps + kb - 1) / kb, pieces = ranges * across, next = nblocks * ISA(TILE);
    const int once = calls == 1, terms = ISA(tile_terms)(c), left = c->bt == NPK_BF16, how = left ? ISA(WEIGHTS_LEFT) : terms == 1 ? ISA(WEIGHTS_RIGHT) : ISA(WEIGHTS_TERMS);
    char *weights = t->scratch, *sums = weights + 2 * ISA(panel_bytes)(c);
    t->prepared = NULL;
    ISA(tiles_begin)();
    ISA(panel) piece[2];
    for (int64_t i = -1; i < pieces && !npk_cancelled(t); i++) { // each piece begins while the one before is multiplied, the first before all
        ISA(panel) *own = &piece[i & 1], *then = &piece[(i + 1) & 1];
        const int64_t strip = strip0 + (once ? (i + 1) / ranges : (i + 1) % across) * cut.abreast, from = (once ? (i + 1) % ranges : (i + 1) / across) * kb, more = i + 1 < pieces;
        if (more) ISA(panel_begin)(then, c, strip, npk_min(cut.abreast, end - strip), from, npk_min(kb, steps - from), terms, once, weights + ((i + 1) & 1) * ISA(panel_bytes)(c));
        if (i < 0) continue;
        const ISA(operand) w = {own->tiles, own->room * terms * ISA(TILE), terms * ISA(TILE), own->mask};
        char *to = sums + (own->strip - strip0) * next;
        for (int64_t b = 0, call = 0; b < nblocks; b += cut.rows, call++) {
            const ISA(operand) x = {(const char *)c->a + ISA(packed_at)(steps, blocks, block0 + b, own->from), own->steps * ISA(TILE), ISA(TILE), 0};
            ISA(overlap) side = {call == 0 ? own : NULL, more && call == calls - 1 ? then : NULL, {0}};
            if (once && c->bt == NPK_BF12X16) { // one stream, which runs on into the next strip
                side.ahead = ISA(prefetch_of)(own, 0, 1, own->steps);
                side.ahead.at += ISA(FEW_AHEAD);
            } else if (more) side.ahead = ISA(prefetch_of)(then, call, calls, own->steps);
            ISA(multiply_any)(how, own->strips, npk_min(cut.rows, nblocks - b), own->steps, w, x, to + b * ISA(TILE), next, own->from == 0, &side);
        }
    }
    _tile_release();
    if (npk_cancelled(t)) return; // there may be sums that were never made
    ISA(put_sums)(c, sums, next, block0, nblocks, strip0, end - strip0, left, (float *)(sums + ISA(STRIPS) * ISA(BLOCKS) * (int64_t)ISA(TILE)));
}

enum { ISA(PEAK_STEPS) = 256 };

// Arithmetic alone: two by two tiles again and again, from the nearest cache.
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
    const ISA(operand) w = {a, ISA(TILE), 0, 0}, x = {b, ISA(TILE), 0, 0}; // the same tiles in every step
    ISA(overlap) nothing = {0};
    ISA(tiles_begin)();
    ISA(multiply)(ISA(WEIGHTS_LEFT), 2, 2, ISA(PEAK_STEPS), w, x, y, 2 * ISA(TILE), 1, &nothing);
    _tile_release();
}

// Products of many rows in the matrix unit. A chunk is some strips of columns of y and some sixteens of its rows, whose sums all fit the second cache. For a block of K after the
// other, piece after piece of the weights (tiles_weights.h) is multiplied with all rows: the piece stays in the nearest cache, what these rows have of the block in the second.
//
// Every sum goes over K in order, in steps of 32, whatever the numbers of rows and columns are.

enum {
    ISA(STRIPS) = 16, // in a chunk at most
    ISA(BLOCKS) = 32, // sixteens of rows in a chunk at most
};

// Strips per chunk, and rows in sixteens.
typedef struct ISA(cut) { int64_t strips, groups, blocks, parts; } ISA(cut);

INLINE ISA(cut) ISA(cut_of)(const npk_cmd *c, int threads) {
    int64_t strips = (c->n + ISA(SIDE) - 1) / ISA(SIDE), blocks = (c->m + ISA(SIDE) - 1) / ISA(SIDE), want = 4 * threads;
    ISA(cut) p = {ISA(STRIPS), 0, ISA(BLOCKS), (blocks + ISA(BLOCKS) - 1) / ISA(BLOCKS)};
    if (threads == 1) want = 1;
    while (p.strips > 2 && (strips + p.strips - 1) / p.strips * p.parts < want) p.strips /= 2;
    p.groups = (strips + p.strips - 1) / p.strips;
    // Few columns: cut rows too, at the price of preparing the weights again for each cut.
    while (p.groups * p.parts < want && blocks / (p.parts + 1) >= 8) p.parts++;
    p.blocks = npk_up((blocks + p.parts - 1) / p.parts, 2);
    p.parts = (blocks + p.blocks - 1) / p.blocks;
    return p;
}

TARGET static int64_t ISA(gemm_tiles_chunks)(const npk_cmd *c, int phase, int threads) {
    (void)phase;
    ISA(cut) p = ISA(cut_of)(c, threads);
    return p.groups * p.parts;
}

INLINE int ISA(tile_limbs)(const npk_cmd *c) { return c->bt >= NPK_Q8_0 && c->yt != NPK_BF16 ? 2 : 1; }

// Steps of a piece at most: all of a block of K, or half of it.
INLINE int64_t ISA(piece_steps)(int64_t steps, int limbs) { return (ISA(block_steps)(steps) + limbs - 1) / limbs; }

INLINE int64_t ISA(piece_bytes)(void) { return 2 * ISA(KB_MOST) * (int64_t)ISA(TILE); }

TARGET static int64_t ISA(gemm_tiles_scratch)(const npk_cmd *c) {
    (void)c;
    return 2 * ISA(piece_bytes)() + ISA(STRIPS) * ISA(BLOCKS) * (int64_t)ISA(TILE);
}

// The piece after p, of strips first..end; without steps behind the last.
INLINE ISA(piece) ISA(piece_after)(ISA(piece) p, int64_t first, int64_t end, int64_t steps, int64_t most) {
    p.strip += 2;
    if (p.strip >= end) {
        p.strip = first;
        p.from += p.steps;
        p.steps = npk_min(most, steps - p.from);
    }
    p.strips = npk_min(2, end - p.strip);
    return p;
}

TARGET static void ISA(gemm_tiles)(npk_thread *t, const npk_cmd *c, int phase, int64_t chunk) {
    (void)phase;
    const ISA(cut) cut = ISA(cut_of)(c, t->threads);
    const int64_t steps = ISA(tile_steps)(c->k), strips = (c->n + ISA(SIDE) - 1) / ISA(SIDE), blocks = (c->m + ISA(SIDE) - 1) / ISA(SIDE);
    const int64_t strip0 = chunk / cut.parts * cut.strips, end = npk_min(strips, strip0 + cut.strips);
    const int64_t block0 = chunk % cut.parts * cut.blocks, nblocks = npk_min(cut.blocks, blocks - block0), calls = (nblocks + 1) / 2;
    const int limbs = ISA(tile_limbs)(c), left = c->bt < NPK_Q8_0, how = left ? ISA(WEIGHTS_LEFT) : limbs == 1 ? ISA(WEIGHTS_RIGHT) : ISA(WEIGHTS_CUT);
    const int64_t most = ISA(piece_steps)(steps, limbs);
    char *weights = t->scratch, *other = weights + ISA(piece_bytes)(), *sums = other + ISA(piece_bytes)();
    t->prepared = NULL;
    ISA(piece) p = {strip0, npk_min(2, end - strip0), 0, npk_min(most, steps)}, next = ISA(piece_after)(p, strip0, end, steps, most);
    for (int i = 0; i < ISA(PORTIONS); i++) ISA(portion)(weights, c, &p, next.steps > 0 ? &next : &p, i, limbs);
    ISA(tiles_begin)();
    while (p.steps > 0 && !npk_cancelled(t)) {
        const ISA(piece) after = next.steps > 0 ? ISA(piece_after)(next, strip0, end, steps, most) : next, *then = after.steps > 0 ? &after : &next;
        const ISA(operand) w = {{weights, weights + limbs * p.steps * ISA(TILE)}, 64, limbs * ISA(TILE)};
        int made = next.steps > 0 ? 0 : ISA(PORTIONS);
        for (int64_t b = 0; b < nblocks; b += 2) {
            const int two = (int)npk_min(2, nblocks - b);
            ISA(operand) x = {.stride = 64, .step = ISA(TILE)};
            for (int i = 0; i < 2; i++) x.at[i] = (const char *)c->a + ISA(packed_at)(steps, blocks, block0 + b + i, p.from);
            char *at[2][2];
            for (int i = 0; i < 2; i++) // of the weights, and of the activations
                for (int j = 0; j < 2; j++) {
                    char *sum = sums + ((p.strip - strip0 + i) * ISA(BLOCKS) + b + j) * ISA(TILE);
                    if (left) at[i][j] = sum;
                    else at[j][i] = sum;
                }
            if (left) ISA(multiply_any)(how, (int)p.strips, two, p.steps, w, x, at, p.from == 0);
            else ISA(multiply_any)(how, two, (int)p.strips, p.steps, x, w, at, p.from == 0);
            for (; made < ISA(PORTIONS) * (b / 2 + 1) / calls; made++) ISA(portion)(other, c, &next, then, made, limbs);
        }
        char *done = weights;
        weights = other, other = done;
        p = next, next = after;
    }
    _tile_release();
    if (npk_cancelled(t)) return; // there may be sums that were never made
    // Sixteen rows of y after the other, all that the chunk has of them: rows may lie so far apart that they share cache sets.
    for (int64_t b = 0; b < nblocks; b++)
        for (int64_t s = strip0; s < end; s++) ISA(put_tile)(c, sums + ((s - strip0) * ISA(BLOCKS) + b) * ISA(TILE), (block0 + b) * ISA(SIDE), s * ISA(SIDE), left);
}

// GEMM: products of many rows. Activations come as panels of MR rows, made once by NPK_PACK and
// shared by the products that read them. Each chunk packs its own weights, a block of K at a time,
// and multiplies tiles of MR x NR that stay in registers.
//
// A panel has, step after step, the MR (or NR) values of one k. In tables of pairs a step is two k,
// in the 32 bits of a float. K is cut into blocks of a fixed size, so sums do not depend on how the
// work is shared out.
//
// Source: Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication (2008).

enum {
    ISA(NR) = NV * VL,
    ISA(KC) = 1024,                     // steps of a block: NB panels of them are 512 KB
    ISA(NB) = 128 / (NV * VL),          // panels of weights that a chunk packs at most
    ISA(MB) = (512 + MR - 1) / MR * MR, // rows of a chunk at most, which bounds its partial sums
    ISA(PACK_AHEAD) = 256,              // prefetch distance in rows of activations, in elements
};

// Prompts come in chunks of 512 rows by default: one row fewer here would pack every weight twice.
_Static_assert(ISA(MB) >= 512, "a product of 512 rows is one chunk of rows");

INLINE int64_t ISA(steps)(int64_t k) { return PAIRED ? (k + 1) / 2 : k; }

// Loads a vector of pairs of bfloat16 as they are in memory; n counts elements and may be odd.
INLINE vf ISA(raw)(const void *p, int64_t i) {
    return v_load((const float *)((const uint16_t *)p + i));
}
INLINE vf ISA(rawn)(const void *p, int64_t i, int64_t n) {
    uint16_t tmp[2 * VL] = {0};
    memcpy(tmp, (const uint16_t *)p + i, (size_t)n * 2);
    return v_load((const float *)tmp);
}

// Loads VL steps from step s of a row, zeros beyond k. Pairs is a constant wherever this is
// inlined.
INLINE vf ISA(along)(const void *p, int type, int64_t at, int64_t s, int64_t k, const int pairs) {
    int64_t left = pairs ? k - 2 * s : k - s;
    if (pairs) return left >= 2 * VL ? ISA(raw)(p, at + 2 * s) : ISA(rawn)(p, at + 2 * s, left);
    return left >= VL ? v_get(p, type, at + s) : v_getn(p, type, at + s, (int)left);
}

// Packs one panel: MR rows are transposed, VL steps at a time. Rows beyond m are zero.
INLINE void ISA(pack_panel)(const npk_cmd *c, int64_t panel) {
    int64_t steps = ISA(steps)(c->k), rows = npk_min(MR, c->m - panel * MR);
    float *dst = (float *)c->y + panel * steps * MR;
    for (int64_t s = 0; s < steps; s += VL) {
        vf r[VL];
        const int64_t e = PAIRED ? 2 * s : s, ahead = npk_min(c->k - 1, e + ISA(PACK_AHEAD));
        if (e * npk_size(c->at) % 64 == 0)
            for (int i = 0; i < rows; i++)
                __builtin_prefetch(npk_at(c->a, c->at, (panel * MR + i) * c->lda + ahead));
        for (int i = 0; i < VL; i++) {
            const int64_t at = (panel * MR + i) * c->lda;
            r[i] = i < rows ? ISA(along)(c->a, c->at, at, s, c->k, PAIRED) : v_zero();
        }
        v_transpose(r);
        int64_t n = npk_min(VL, steps - s);
        for (int j = 0; j < n; j++) v_storen(dst + (s + j) * MR, r[j], MR);
    }
}

// Packs one panel of weights [steps][NR] from rows row.. of b [n, k], steps from.. of it.
INLINE void ISA(pack_nk)(float *dst, const void *b, int type, int64_t ldb, int64_t row, int64_t n,
                         int64_t k, int64_t from, int64_t steps) {
    // BF16 is transposed as pairs even if floats are wanted: that takes half the shuffles, and
    // whole cache lines of rows that may all map to the same cache set.
    const int split = !PAIRED && type == NPK_BF16;
    const int64_t each = split ? 2 * VL : VL;
    for (int v = 0; v < NV; v++)
        for (int64_t s = 0; s < steps; s += each) {
            vf r[VL];
            for (int i = 0; i < VL; i++) {
                int64_t at = row + v * VL + i;
                if (at >= n) r[i] = v_zero();
                else if (split) r[i] = ISA(along)(b, type, at * ldb + from, s / 2, k - from, 1);
                else r[i] = ISA(along)(b, type, at * ldb, from + s, k, PAIRED);
            }
            v_transpose(r);
            float *to = dst + s * NV * VL + v * VL;
            int64_t m = npk_min(each, steps - s);
            if (!split) {
                for (int j = 0; j < m; j++) v_store(to + j * NV * VL, r[j]);
                continue;
            }
            for (int j = 0; 2 * j < m; j++) {
                vf even, odd;
                v_split(r[j], &even, &odd);
                v_store(to + 2 * j * NV * VL, even);
                if (2 * j + 1 < m) v_store(to + (2 * j + 1) * NV * VL, odd);
            }
        }
}

// The same from columns column.. of b [k, n].
INLINE void ISA(pack_kn)(float *dst, const void *b, int type, int64_t ldb, int64_t column,
                         int64_t n, int64_t k, int64_t from, int64_t steps) {
    int64_t width = npk_min(NV * VL, n - column);
    for (int64_t s = 0; s < steps; s++, dst += NV * VL) {
        if (PAIRED) {
            const uint16_t *even = (const uint16_t *)b + 2 * (from + s) * ldb + column;
            const uint16_t *odd = even + ldb;
            int last = 2 * (from + s) + 1 >= k;
            uint32_t *to = (uint32_t *)dst;
            for (int64_t i = 0; i < NV * VL; i++)
                to[i] = i < width ? even[i] | (last ? 0 : (uint32_t)odd[i] << 16) : 0;
            continue;
        }
        for (int v = 0; v < NV; v++) {
            int64_t left = width - v * VL, at = (from + s) * ldb + column + v * VL;
            v_store(dst + v * VL, left >= VL ? v_get(b, type, at)
                                  : left > 0 ? v_getn(b, type, at, (int)left)
                                             : v_zero());
        }
    }
}

// The same from weights in BF12: a part of as many rows as a vector has lanes is transposed at
// once.
INLINE void ISA(pack_blocks4)(float *dst, const npk_cmd *c, int64_t row, int64_t from,
                              int64_t steps) {
    enum { ABREAST = VL / NPK_BLOCK4_ROWS };
    const int64_t blocks = (c->n + NPK_BLOCK4_ROWS - 1) / NPK_BLOCK4_ROWS;
    const int64_t each = PAIRED ? NPK_BLOCK4_COLUMNS / 2 : NPK_BLOCK4_COLUMNS; // steps of a unit
    for (int v = 0; v < NV; v++) {
        const int64_t q0 = (row + v * VL) / NPK_BLOCK4_ROWS;
        const int64_t count = npk_max(0, npk_min(ABREAST, blocks - q0));
        float *to = dst + v * VL;
        ISA(block4) q[ABREAST];
        for (int i = 0; i < count; i++)
            q[i] = ISA(block4_at)(c->b, c->block + q0 + i, c->k, from / each);
        for (int64_t u = from / each; u < (from + steps) / each; u++) {
            vf w[ABREAST][ISA(PARTS)][NPK_BLOCK4_ROWS];
            for (int i = 0; i < count; i++) {
                // Prefetch the blocks that are transposed after these.
                const int64_t ahead = ABREAST * npk_block4_bytes(c->k) + u * NPK_BF12_UNIT;
                for (int j = 0; j < NPK_BF12_UNIT; j += 64)
                    __builtin_prefetch(q[i].codes + ahead + j, 0, 2);
                if (ISA(block4_until)(&q[i], u + 1) == u) {
                    ISA(block4_patch)(&q[i], u, w[i]);
                    continue;
                }
                for (int p = 0; p < ISA(PARTS); p++)
                    ISA(block4_read)(&q[i], u * ISA(PARTS) + p, w[i][p]);
            }
            for (int p = 0; p < ISA(PARTS); p++) {
                vf r[VL];
                for (int i = 0; i < VL; i++) {
                    const int block = i / NPK_BLOCK4_ROWS;
                    r[i] = block < count ? w[block][p][i % NPK_BLOCK4_ROWS] : v_zero();
                }
                v_transpose(r);
                for (int j = 0; j < VL; j++) {
                    if (PAIRED) {
                        v_store(to, r[j]);
                        to += NV * VL;
                        continue;
                    }
                    vf even, odd;
                    v_split(r[j], &even, &odd);
                    v_store(to, even);
                    v_store(to + NV * VL, odd);
                    to += 2 * NV * VL;
                }
            }
        }
    }
}

// Packs one panel of weights from groups, columns column.., 32 elements of them at a time. Pairs
// are rounded to BF16. Type is a constant wherever this is inlined.
INLINE void ISA(pack_group)(const int type, float *dst, const npk_cmd *c, int64_t column,
                            int64_t from, int64_t steps) {
    const ISA(form) f = ISA(form_of)(type);
    const int64_t k = c->k, bytes = ISA(group_bytes)(f, k);
    const int64_t groups = (c->n + ISA(LANES) - 1) / ISA(LANES);
    const vf bias = v_set1((float)f.bias);
    for (int v = 0; v < NV; v++) {
        int64_t group = (column + v * VL) / ISA(LANES);
        int lane = (int)((column + v * VL) % ISA(LANES));
        float *to = dst + v * VL;
        if (group >= groups) {
            for (int64_t s = 0; s < steps; s++) v_store(to + s * NV * VL, v_zero());
            continue;
        }
        const char *g = (const char *)c->b + group * bytes, *quants = g + ISA(scale_bytes)(f, k);
        const int64_t each = PAIRED ? ISA(UNIT) / 2 : ISA(UNIT); // steps of a unit
        for (int64_t u = from / each; u < (from + steps) / each; u++) {
            const char *unit = quants + u * f.words * 64;
            if (lane == 0) // prefetch the next group
                for (int i = 0; i < f.words; i++) __builtin_prefetch(unit + bytes + i * 64, 0, 2);
            vf scale[2], minimum[2];
            for (int h = 0; h < 2; h++) {
                ISA(factors)(f, g, 2 * u + h, lane, &scale[h], &minimum[h]);
                minimum[h] = v_sub(minimum[h], v_mul(scale[h], bias));
            }
#pragma GCC unroll 8
            for (int j = 0; j < 8; j++) {
                vf x[4];
                ISA(four)(f, unit, lane, j, scale[j / 4], minimum[j / 4], x);
#if PAIRED
                for (int r = 0; r < 4; r += 2, to += NV * VL) v_store(to, v_pair(x[r], x[r + 1]));
#else
                for (int r = 0; r < 4; r++, to += NV * VL) v_store(to, x[r]);
#endif
            }
        }
    }
}

// Packs one panel of weights of any type.
TARGET static void ISA(pack_weights)(float *dst, const npk_cmd *c, int64_t column, int64_t from,
                                     int64_t steps) {
    switch (c->bt) {
#define GROUP(type)                                                                                \
    case type: ISA(pack_group)(type, dst, c, column, from, steps); break;
        EACH_GROUPED(GROUP)
#undef GROUP
    case NPK_BF12X4: ISA(pack_blocks4)(dst, c, column, from, steps); break;
    default:
        if (c->flags & NPK_KN)
            ISA(pack_kn)(dst, c->b, c->bt, c->ldb, column, c->n, c->k, from, steps);
        else ISA(pack_nk)(dst, c->b, c->bt, c->ldb, column, c->n, c->k, from, steps);
    }
}

// A tile's partial sums [rows][ld]. It adds to them unless it is the first of its row of tiles.
typedef struct ISA(tile) {
    float *part;
    int64_t ld;
    int first;
} ISA(tile);

// mr x NR products over a number of steps. mr is a constant wherever this is inlined, and acc is in
// registers.
INLINE void ISA(tile_rows)(const int mr, int64_t steps, const float *a, const float *b,
                           const ISA(tile) *o) {
    vf acc[MR][NV];
    for (int i = 0; i < mr; i++)
        for (int v = 0; v < NV; v++)
            acc[i][v] = o->first ? v_zero() : v_load(o->part + i * o->ld + v * VL);
    for (int64_t s = 0; s < steps; s++, a += MR, b += NV * VL) {
        vf w[NV];
        for (int v = 0; v < NV; v++) w[v] = v_load(b + v * VL);
#pragma GCC unroll 16
        for (int i = 0; i < mr; i++) {
            vf x = v_set1(a[i]);
            for (int v = 0; v < NV; v++) acc[i][v] = v_mac(acc[i][v], x, w[v]);
        }
    }
    for (int i = 0; i < mr; i++)
        for (int v = 0; v < NV; v++) v_store(o->part + i * o->ld + v * VL, acc[i][v]);
}

#define TILE_ROWS(n)                                                                               \
    case n: ISA(tile_rows)(n < MR ? n : MR, steps, a, b, o); break;
TARGET static void ISA(tile_any)(int64_t rows, int64_t steps, const float *a, const float *b,
                                 const ISA(tile) *o) {
    switch (rows) {
        TILE_ROWS(1)
        TILE_ROWS(2)
        TILE_ROWS(3)
#if MR > 4
            TILE_ROWS(4) TILE_ROWS(5)
#endif
#if MR > 6
                TILE_ROWS(6) TILE_ROWS(7) TILE_ROWS(8) TILE_ROWS(9) TILE_ROWS(10) TILE_ROWS(11)
#endif
                    default : ISA(tile_rows)(MR, steps, a, b, o);
    }
}
#undef TILE_ROWS

TARGET static int64_t ISA(pack_bytes)(const npk_cmd *c) {
    return npk_up(c->m, c->flags & NPK_WIDE ? ISA(NR) : MR) * ISA(steps)(c->k) * 4;
}

TARGET static int64_t ISA(pack_chunks)(const npk_cmd *c, int phase, int threads) {
    (void)phase, (void)threads;
    int64_t each = c->flags & NPK_WIDE ? ISA(NR) : MR;
    return (c->m + each - 1) / each;
}

// One chunk is one panel, of NR rows for NPK_INPLACE.
TARGET static void ISA(pack)(npk_thread *t, const npk_cmd *c, int phase, int64_t chunk) {
    (void)t, (void)phase;
    const int64_t steps = ISA(steps)(c->k);
    float *wide = (float *)c->y + chunk * steps * ISA(NR);
    if (PAIRED && c->flags & NPK_WIDE)
        ISA(pack_nk)(wide, c->a, c->at, c->lda, chunk * ISA(NR), c->m, c->k, 0, steps);
    else ISA(pack_panel)(c, chunk);
}

// How a product is cut into chunks: columns in groups of nb panels, rows in groups of mb. The sums
// do not depend on it.
typedef struct ISA(plan) {
    int64_t nb, groups, mb, parts;
} ISA(plan);

INLINE ISA(plan) ISA(gemm_plan)(const npk_cmd *c, int threads) {
    int64_t panels = (c->n + ISA(NR) - 1) / ISA(NR), want = threads == 1 ? 1 : 6 * threads;
    ISA(plan) p = {ISA(NB), 0, ISA(MB), (c->m + ISA(MB) - 1) / ISA(MB)};
    while (p.nb > 1 && (panels + p.nb - 1) / p.nb * p.parts < want) p.nb /= 2;
    p.groups = (panels + p.nb - 1) / p.nb;
    // With few columns rows are cut too, at the price of packing the weights again for each cut.
    while (p.groups * p.parts < want && c->m / (p.parts + 1) >= 8 * MR) p.parts++;
    p.mb = npk_up((c->m + p.parts - 1) / p.parts, MR);
    p.parts = (c->m + p.mb - 1) / p.mb;
    return p;
}

TARGET static int64_t ISA(gemm_chunks)(const npk_cmd *c, int phase, int threads) {
    (void)phase;
    ISA(plan) p = ISA(gemm_plan)(c, threads);
    return p.groups * p.parts;
}

TARGET static int64_t ISA(gemm_scratch)(const npk_cmd *c) {
    (void)c;
    return ((int64_t)ISA(KC) + (int64_t)ISA(MB)) * ISA(NB) * ISA(NR) * 4;
}

TARGET static void ISA(gemm)(npk_thread *t, const npk_cmd *c, int phase, int64_t chunk) {
    (void)phase;
    ISA(plan) p = ISA(gemm_plan)(c, t->threads);
    int64_t steps = ISA(steps)(c->k), panels = (c->n + ISA(NR) - 1) / ISA(NR);
    int64_t first = chunk / p.parts * p.nb, count = npk_min(p.nb, panels - first);
    int64_t row = chunk % p.parts * p.mb, rows = npk_min(p.mb, c->m - row);
    const int64_t column = first * ISA(NR), columns = npk_min(count * ISA(NR), c->n - column);
    float *weights = (float *)t->scratch, *part = weights + (int64_t)ISA(KC) * ISA(NB) * ISA(NR);
    t->prepared = NULL;
    for (int64_t from = 0; from < steps; from += ISA(KC)) {
        int64_t n = npk_min(ISA(KC), steps - from);
        for (int64_t j = 0; j < count; j++) {
            if (npk_cancelled(t)) return;
            ISA(pack_weights)(weights + j * n * ISA(NR), c, column + j * ISA(NR), from, n);
        }
        const int done = from + n == steps;
        ISA(tile) o = {NULL, ISA(NB) * ISA(NR), from == 0};
        for (int64_t r = 0; r < rows; r += MR) {
            const float *a = (const float *)c->a + (row + r) * steps + from * MR;
            const int64_t height = npk_min(MR, rows - r);
            // Sums that no other block of K adds to stay in the L1 cache until they are stored.
            float *sums = part + (o.first && done ? 0 : r * o.ld);
            if (npk_cancelled(t)) return;
            if (done && c->flags & NPK_FUSED) ISA(fuse_ahead)(c, row + r, height, column, columns);
            for (int64_t j = 0; j < count; j++) {
                o.part = sums + j * ISA(NR);
                ISA(tile_any)(height, n, a, weights + j * n * ISA(NR), &o);
            }
            if (done) ISA(put_block)(c, row + r, height, column, columns, sums, o.ld);
        }
    }
}

// Measures arithmetic alone: the same tile again and again, from the L1 cache.
TARGET static int64_t ISA(peak_chunks)(const npk_cmd *c, int phase, int threads) {
    (void)phase, (void)threads;
    return c->n;
}

TARGET static int64_t ISA(peak_scratch)(const npk_cmd *c) {
    (void)c;
    return (int64_t)NPK_PEAK_STEPS * (MR + ISA(NR)) * 4 + MR * ISA(NR) * 4;
}

TARGET static void ISA(peak)(npk_thread *t, const npk_cmd *c, int phase, int64_t chunk) {
    (void)phase, (void)chunk;
    float *a = (float *)t->scratch, *b = a + (int64_t)NPK_PEAK_STEPS * MR;
    float *y = b + (int64_t)NPK_PEAK_STEPS * ISA(NR);
    if (t->prepared != c) memset(a, 0, (size_t)ISA(peak_scratch)(c));
    t->prepared = c;
    const ISA(tile) o = {y, ISA(NR), 1};
    ISA(tile_any)(MR, NPK_PEAK_STEPS, a, b, &o);
}

#define PEAK_FLOPS (MR * ISA(NR) * NPK_PEAK_STEPS * (PAIRED ? 4 : 2))

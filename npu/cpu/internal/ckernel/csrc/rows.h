// Row-wise kernels. Arithmetic is FP32 whatever the element types are.

enum { ISA(CHUNK) = 1 << 14 }; // elements of a chunk: some microseconds of work

INLINE int64_t ISA(row_step)(const npk_cmd *c) {
    return npk_max(1, ISA(CHUNK) / npk_max(1, c->n * npk_max(1, c->k)));
}

TARGET static int64_t ISA(row_chunks)(const npk_cmd *c, int phase, int threads) {
    (void)phase;
    // A few rows are spread over all threads.
    int64_t step = npk_min(ISA(row_step)(c), npk_max(1, c->m / (2 * threads)));
    return (c->m + step - 1) / step;
}

// Loops over the rows of a chunk.
#define EACH_ROW                                                                                   \
    int64_t step = npk_min(ISA(row_step)(c), npk_max(1, c->m / (2 * t->threads)));                 \
    (void)phase;                                                                                   \
    for (int64_t r = chunk * step, end = npk_min(c->m, r + step); r < end; r++)

// Dequantizes row r of a weight with rows of n elements, bit for bit as dtype.Dequantize does:
// products are rounded before anything is added. Stores it as y's type.
TARGET static void ISA(embed_grouped)(const npk_cmd *c, int64_t r, int64_t to) {
    const ISA(form) f = ISA(form_of)(c->bt);
    const char *g = (const char *)c->b + r / ISA(LANES) * ISA(group_bytes)(f, c->n),
               *quants = g + ISA(scale_bytes)(f, c->n);
    const int lane = (int)(r % ISA(LANES)), part_lane = lane / VL * VL, at = lane % VL;
    for (int64_t e = 0; e < c->n; e += ISA(UNIT)) {
        float x[ISA(UNIT)];
        for (int h = 0; h < 2; h++) {
            vf scale, minimum;
            float s[VL], m[VL], q[VL];
            ISA(factors)(f, g, e / 16 + h, part_lane, &scale, &minimum);
            v_store(s, scale);
            v_store(m, minimum);
            for (int p = 0; p < 8; p++) { // pairs of elements
                int j = f.high < 0 ? 4 * h + p / 2 : p / 2,
                    i = f.high < 0 ? p % 2 : 2 * (p % 2) + h;
                vi pair = vi_none();
                switch (c->bt) {
#define QUANTS(type)                                                                               \
    case type:                                                                                     \
        pair = ISA(quants)(ISA(form_of)(type), quants + e / ISA(UNIT) * f.words * 64, part_lane,   \
                           j, i);                                                                  \
        break;
                    EACH_GROUPED(QUANTS)
#undef QUANTS
                }
                int first = ISA(element)(f, j, i);
                for (int second = 0; second < 2; second++) {
                    v_store(q, vi_float(second ? vi_shr(pair, 16) : vi_and(pair, 0xffff)));
                    float product = s[at] * (q[at] - (float)f.bias);
                    // keeps the compiler from fusing it with the addition
                    __asm__ volatile("" : "+m"(product));
                    x[first + 2 * second] = f.scales == ISA(AFFINE) || f.scales == ISA(NESTED)
                                                ? product + m[at]
                                                : product;
                }
            }
        }
        for (int i = 0; i < ISA(UNIT); i += VL) v_put(c->y, c->yt, to + e + i, v_load(x + i));
    }
}

TARGET static void ISA(embed)(npk_thread *t, const npk_cmd *c, int phase, int64_t chunk) {
    EACH_ROW {
        int64_t id = ((const int32_t *)c->a)[r];
        // checked before the run, but the host may have written since
        if (id < 0 || id >= c->k) continue;
        if (c->bt >= NPK_Q8_0) ISA(embed_grouped)(c, id, r * c->ldy);
        else ROW(c->n, { PUT(c->y, c->yt, r * c->ldy, GET(c->b, c->bt, id * c->ldb)); });
    }
}

TARGET static void ISA(rmsnorm)(npk_thread *t, const npk_cmd *c, int phase, int64_t chunk) {
    EACH_ROW {
        for (int64_t h = 0; h < c->k; h++) {
            int64_t from = r * c->lda + h * c->n, to = r * c->ldy + h * c->n;
            vf squares = v_zero();
            ROW(c->n, {
                vf x = GET(c->a, c->at, from);
                squares = v_fma(x, x, squares);
            });
            vf scale = v_set1(1.0f / sqrtf(v_sum(squares) / (float)c->n + c->epsilon));
            ROW(c->n, {
                PUT(c->y, c->yt, to,
                    v_mul(v_mul(GET(c->a, c->at, from), scale), GET(c->b, c->bt, 0)));
            });
        }
    }
}

TARGET static void ISA(layernorm)(npk_thread *t, const npk_cmd *c, int phase, int64_t chunk) {
    EACH_ROW {
        int64_t from = r * c->lda, to = r * c->ldy;
        vf sum = v_zero(), squares = v_zero();
        ROW(c->n, { sum = v_add(sum, GET(c->a, c->at, from)); });
        vf mean = v_set1(v_sum(sum) / (float)c->n);
        int64_t whole = c->n / VL * VL; // zeros that pad the tail are no deviations
        for (int64_t i = 0; i < whole; i += VL) {
            vf d = v_sub(v_get(c->a, c->at, from + i), mean);
            squares = v_fma(d, d, squares);
        }
        float tail = 0;
        if (whole < c->n) {
            float rest[VL];
            v_store(rest, v_sub(v_getn(c->a, c->at, from + whole, (int)(c->n - whole)), mean));
            for (int64_t i = 0; i < c->n - whole; i++) tail += rest[i] * rest[i];
        }
        vf scale = v_set1(1.0f / sqrtf((v_sum(squares) + tail) / (float)c->n + c->epsilon));
        ROW(c->n, {
            vf x = v_mul(v_sub(GET(c->a, c->at, from), mean), scale);
            PUT(c->y, c->yt, to, v_fma(x, GET(c->b, c->bt, 0), GET(c->c, c->ct, 0)));
        });
    }
}

TARGET static void ISA(rope)(npk_thread *t, const npk_cmd *c, int phase, int64_t chunk) {
    int64_t half = c->k / 2;
    EACH_ROW {
        for (int64_t h = 0; h < c->n; h++) {
            int64_t from = r * c->lda + h * c->k, to = r * c->ldy + h * c->k,
                    angle = r * c->ldb + h * c->b_head;
            ROW(half, {
                vf x = GET(c->a, c->at, from);
                vf y = GET(c->a, c->at, from + half);
                vf cosine = GET(c->b, c->bt, angle);
                vf sine = GET(c->b, c->bt, angle + half);
                PUT(c->y, c->yt, to, v_sub(v_mul(x, cosine), v_mul(y, sine)));
                PUT(c->y, c->yt, to + half, v_fma(y, cosine, v_mul(x, sine)));
            });
        }
    }
}

TARGET static void ISA(silumul)(npk_thread *t, const npk_cmd *c, int phase, int64_t chunk) {
    EACH_ROW {
        ROW(c->n, {
            PUT(c->y, c->yt, r * c->ldy,
                v_mul(v_silu(GET(c->a, c->at, r * c->lda)), GET(c->b, c->bt, r * c->ldb)));
        });
    }
}

// No supported model needs a fast GELU, and there is no vector erf here.
TARGET static void ISA(gelu)(npk_thread *t, const npk_cmd *c, int phase, int64_t chunk) {
    EACH_ROW {
        ROW(c->n, {
            float x[VL];
            v_store(x, GET(c->a, c->at, r * c->lda));
            for (int j = 0; j < VL; j++) {
                if (c->flags & NPK_TANH)
                    x[j] *=
                        0.5f * (1 + tanhf(0.7978845608f * (x[j] + 0.044715f * x[j] * x[j] * x[j])));
                else x[j] *= 0.5f * (1 + erff(x[j] * 0.7071067812f));
            }
            PUT(c->y, c->yt, r * c->ldy, v_load(x));
        });
    }
}

TARGET static void ISA(add)(npk_thread *t, const npk_cmd *c, int phase, int64_t chunk) {
    EACH_ROW {
        ROW(c->n, {
            PUT(c->y, c->yt, r * c->ldy,
                v_add(GET(c->a, c->at, r * c->lda), GET(c->b, c->bt, r * c->ldb)));
        });
    }
}

// A chunk is one segment and head.
TARGET static int64_t ISA(kvwrite_chunks)(const npk_cmd *c, int phase, int threads) {
    (void)phase, (void)threads;
    return c->nsegs * c->n;
}

TARGET static void ISA(kvwrite)(npk_thread *t, const npk_cmd *c, int phase, int64_t chunk) {
    (void)t, (void)phase;
    const npk_seg *s = &c->segs[chunk / c->n];
    int64_t h = chunk % c->n;
    for (int64_t r = 0; r < s->rows; r++) {
        int64_t from = (s->row + r) * c->lda + h * c->k, to = h * s->khead + (s->pos + r) * c->k;
        ROW(c->k, { PUT(s->k, c->bt, to, GET(c->a, c->at, from)); });
    }
}

INLINE int64_t ISA(copy_step)(const npk_cmd *c) {
    return npk_max(1, ISA(CHUNK) / npk_max(1, c->extents[3]));
}

TARGET static int64_t ISA(copy_chunks)(const npk_cmd *c, int phase, int threads) {
    (void)phase, (void)threads;
    return (c->extents[0] * c->extents[1] * c->extents[2] + ISA(copy_step)(c) - 1) /
           ISA(copy_step)(c);
}

TARGET static void ISA(copy)(npk_thread *t, const npk_cmd *c, int phase, int64_t chunk) {
    (void)t, (void)phase;
    const int64_t *e = c->extents, *from = c->a_strides, *to = c->y_strides;
    int64_t step = ISA(copy_step)(c);
    for (int64_t r = chunk * step, end = npk_min(e[0] * e[1] * e[2], r + step); r < end; r++) {
        int64_t x = r / (e[1] * e[2]), y = r / e[2] % e[1], z = r % e[2];
        int64_t src = x * from[0] + y * from[1] + z * from[2],
                dst = x * to[0] + y * to[1] + z * to[2];
        if (from[3] == 1 && to[3] == 1) {
            ROW(e[3], { PUT(c->y, c->yt, dst, GET(c->a, c->at, src)); });
        } else {
            for (int64_t i = 0; i < e[3]; i++)
                v_putn(c->y, c->yt, dst + i * to[3], v_getn(c->a, c->at, src + i * from[3], 1), 1);
        }
    }
}

// Measures read bandwidth, a megabyte at a time, with or without software prefetch. The maximum is
// stored so that the reads are not optimized away.
TARGET static int64_t ISA(read_chunks)(const npk_cmd *c, int phase, int threads) {
    (void)phase, (void)threads;
    return c->n >> 20;
}

TARGET static void ISA(read)(npk_thread *t, const npk_cmd *c, int phase, int64_t chunk) {
    (void)t, (void)phase;
    const float *p = (const float *)((const char *)c->a + (chunk << 20));
    vf s[4] = {v_zero(), v_zero(), v_zero(), v_zero()};
    for (int64_t i = 0; i < (1 << 18); i += 4 * VL)
        for (int j = 0; j < 4; j++) {
            if (c->ahead) __builtin_prefetch((const char *)(p + i + j * VL) + c->ahead, 0, 2);
            s[j] = v_max(s[j], v_load(p + i + j * VL));
        }
    ((float *)c->y)[chunk] = v_hmax(v_max(v_max(s[0], s[1]), v_max(s[2], s[3])));
}

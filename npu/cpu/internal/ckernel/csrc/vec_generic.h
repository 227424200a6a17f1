// Vectors of four floats in portable C (GCC and Clang vector extensions): SSE2 on x86-64, NEON on
// arm64, and Arm's BF16 instructions if NPK_HAVE_PAIRS is defined.
//
// A vec_*.h file defines VL, the type vf and the v_* functions for one instruction set. Kernels are
// written once in terms of these and compiled once per set. Partial loads are padded with zeros.

#ifdef __SSE2__
#include <emmintrin.h>
#endif
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(NPK_HAVE_PAIRS)
#include <arm_neon.h>
#define ISA(name) name##_armbf16_pairs
#define TARGET __attribute__((unused, target("arch=armv8.2-a+bf16")))
#define INLINE static inline __attribute__((always_inline, unused, target("arch=armv8.2-a+bf16")))
#elif defined(NPK_ARM_BF16)
#define ISA(name) name##_armbf16
#define TARGET __attribute__((unused, target("arch=armv8.2-a+bf16")))
#define INLINE static inline __attribute__((always_inline, unused, target("arch=armv8.2-a+bf16")))
#else
#define ISA(name) name##_generic
#define TARGET __attribute__((unused))
#define INLINE static inline __attribute__((always_inline, unused))
#endif
#if defined(NPK_HAVE_PAIRS) || defined(NPK_ARM_BF16)
#define NV 4 // vectors across a panel of weights
#define VREGS 32
#else
#define NV 2
#define VREGS 16
#endif
#ifdef NPK_HAVE_PAIRS
#define PAIRED 1
#else
#define PAIRED 0
#endif
#define VL 4
#define MR 4 // rows of a panel of activations

typedef float vf __attribute__((vector_size(16)));
typedef uint32_t vu __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));

INLINE vf v_set1(float x) { return (vf){x, x, x, x}; }
INLINE vf v_zero(void) { return v_set1(0); }
INLINE vf v_load(const float *p) {
    vf r;
    memcpy(&r, p, sizeof r);
    return r;
}
INLINE void v_store(float *p, vf x) { memcpy(p, &x, sizeof x); }
INLINE vf v_loadn(const float *p, int n) {
    vf r = v_zero();
    memcpy(&r, p, (size_t)n * 4);
    return r;
}
INLINE void v_storen(float *p, vf x, int n) { memcpy(p, &x, (size_t)n * 4); }
INLINE vf v_add(vf a, vf b) { return a + b; }
INLINE vf v_sub(vf a, vf b) { return a - b; }
INLINE vf v_mul(vf a, vf b) { return a * b; }
INLINE vf v_div(vf a, vf b) { return a / b; }
INLINE vf v_fma(vf a, vf b, vf c) { return a * b + c; }
INLINE vf v_select(vi mask, vf a, vf b) { return (vf)(((vu)a & (vu)mask) | ((vu)b & ~(vu)mask)); }
INLINE vf v_max(vf a, vf b) { return v_select(a > b, a, b); }
// by lane: y if x <= last, otherwise z
INLINE vf v_until(float x, vf last, vf y, vf z) { return v_select(v_set1(x) <= last, y, z); }
// y if x > bound, otherwise z
INLINE vf v_over(vf x, vf bound, vf y, vf z) { return v_select(x > bound, y, z); }
INLINE int v_all_one(vf x) { return x[0] == 1 && x[1] == 1 && x[2] == 1 && x[3] == 1; }
INLINE float v_sum(vf x) { return (x[0] + x[2]) + (x[1] + x[3]); }
// Returns the sums of up to four vectors as the first elements of one, each in the order of v_sum.
INLINE vf v_sums(const vf *x, int n) {
    return (vf){v_sum(x[0]), n > 1 ? v_sum(x[1]) : 0, n > 2 ? v_sum(x[2]) : 0,
                n > 3 ? v_sum(x[3]) : 0};
}
// Returns the sums of VL vectors.
INLINE vf v_sums_all(const vf r[VL]) { return v_sums(r, VL); }
INLINE float v_hmax(vf x) { return fmaxf(fmaxf(x[0], x[2]), fmaxf(x[1], x[3])); }

INLINE vu v_u16(const uint16_t *p) { return (vu){p[0], p[1], p[2], p[3]}; }
INLINE vf v_bf16(const uint16_t *p) { return (vf)(v_u16(p) << 16); }

// Half to float without tables: a multiplication rebiases the exponent, which is also right for
// subnormals.
INLINE vf v_f16(const uint16_t *p) {
    vu h = v_u16(p), u = (h & 0x7fff) << 13;
    vf f = (vf)u * v_set1(0x1p112f);
    vu inf = (vu)(u >= (vu){0x0f800000, 0x0f800000, 0x0f800000, 0x0f800000}) & 0x7f800000;
    return (vf)((vu)f | inf | (h & 0x8000) << 16);
}

// Splits 2*VL adjacent bfloat16 into the even and the odd elements. Little-endian.
INLINE void v_split(vf pairs, vf *even, vf *odd) {
    *even = (vf)((vu)pairs << 16);
    *odd = (vf)((vu)pairs & 0xffff0000);
}
INLINE void v_pairs(const uint16_t *p, vf *even, vf *odd) {
    v_split(v_load((const float *)p), even, odd);
}

INLINE vu v_round_bf16(vf x) {
    vu u = (vu)x, r = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
    vi nan = x != x;
    return (r & ~(vu)nan) | (((u >> 16) | 0x40) & (vu)nan);
}
INLINE void v_store_bf16(uint16_t *p, vf x) {
    vu r = v_round_bf16(x);
    for (int i = 0; i < VL; i++) p[i] = (uint16_t)r[i];
}

// Float to half, nearest even: subnormal results come from an addition whose last place is theirs.
INLINE uint16_t v_half(float x) {
    uint32_t u, sign, r;
    memcpy(&u, &x, 4);
    sign = u >> 16 & 0x8000;
    u &= 0x7fffffff;
    if (u > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (u >> 13 & 0x3ff));
    if (u >= 0x477ff000) return (uint16_t)(sign | 0x7c00);
    if (u < 0x38800000) {
        float f;
        memcpy(&f, &u, 4);
        f += 0.5f;
        memcpy(&r, &f, 4);
        return (uint16_t)(sign | (r - 0x3f000000));
    }
    return (uint16_t)(sign | (u - 0x38000000 + 0xfff + (u >> 13 & 1)) >> 13);
}
INLINE void v_store_f16n(uint16_t *p, vf x, int n) {
    for (int i = 0; i < n; i++) p[i] = v_half(x[i]);
}
INLINE void v_store_f16(uint16_t *p, vf x) { v_store_f16n(p, x, VL); }
INLINE vf v_bf16n(const uint16_t *p, int n) {
    uint16_t t[VL] = {0};
    memcpy(t, p, (size_t)n * 2);
    return v_bf16(t);
}
INLINE vf v_f16n(const uint16_t *p, int n) {
    uint16_t t[VL] = {0};
    memcpy(t, p, (size_t)n * 2);
    return v_f16(t);
}
INLINE void v_store_bf16n(uint16_t *p, vf x, int n) {
    uint16_t t[VL];
    v_store_bf16(t, x);
    memcpy(p, t, (size_t)n * 2);
}

// x times 2^n for integers n in [-150, 128], in two factors so that the exponent field does not
// overflow.
INLINE vf v_scale2(vf x, vf n) {
    vi i = __builtin_convertvector(n, vi), h = i >> 1;
    return x * (vf)((h + 127) << 23) * (vf)((i - h + 127) << 23);
}
// adding 1.5 * 2^23 rounds to nearest if |x| < 2^22
INLINE vf v_round(vf x) { return (x + v_set1(12582912.0f)) - v_set1(12582912.0f); }
INLINE vf v_clamp(vf x, float lo, float hi) { // keeps NaN
    x = v_select(x < v_set1(lo), v_set1(lo), x);
    return v_select(x > v_set1(hi), v_set1(hi), x);
}

INLINE vi vi_none(void) { return (vi){0, 0, 0, 0}; }
INLINE vi vi_load(const void *p) {
    vi r;
    memcpy(&r, p, sizeof r);
    return r;
}
INLINE vi vi_set1(int32_t x) { return (vi){x, x, x, x}; }
// two integers of 16 bits in every lane
INLINE vi vi_pair(const int16_t *p) {
    int32_t x;
    memcpy(&x, p, 4);
    return vi_set1(x);
}
INLINE vi vi_and(vi a, uint32_t mask) { return (vi)((vu)a & mask); }
INLINE vi vi_or(vi a, vi b) { return a | b; }
INLINE vi vi_add(vi a, vi b) { return a + b; }
// adds BF12's base (npk.h) to each of two 16-bit numbers whose code is not 0
INLINE vi vi_based(vi a, vi base) {
    typedef uint16_t vh __attribute__((vector_size(16)));
    return (vi)((vh)a + ((vh)base & (vh)(((vh)a & 0x0780) != 0)));
}
INLINE vi vi_shr(vi a, int n) { return (vi)((vu)a >> (uint32_t)n); }
// left, or right if n is negative
INLINE vi vi_move(vi a, int n) { return n < 0 ? vi_shr(a, -n) : (vi)((vu)a << (uint32_t)n); }
// Adds the products of the two 16-bit integers in each lane.
INLINE vi vi_dot(vi acc, vi a, vi b) {
#ifdef __SSE2__
    // every x86-64 has it, but no 32-bit product
    return acc + (vi)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
    return acc + ((vi)((vu)a << 16) >> 16) * ((vi)((vu)b << 16) >> 16) + (a >> 16) * (b >> 16);
#endif
}
INLINE vf vi_bits(vi a) { return (vf)a; } // the same bits
INLINE vf vi_float(vi a) { return __builtin_convertvector(a, vf); }
INLINE vf v_u8(const uint8_t *p) { return (vf){p[0], p[1], p[2], p[3]}; }
INLINE vf v_i8(const int8_t *p) { return (vf){p[0], p[1], p[2], p[3]}; }
INLINE vf v_abs(vf x) { return (vf)((vu)x & 0x7fffffff); }

INLINE void v_transpose(vf r[VL]) {
    float t[VL][VL];
    for (int i = 0; i < VL; i++) v_store(t[i], r[i]);
    for (int i = 0; i < VL; i++) r[i] = (vf){t[0][i], t[1][i], t[2][i], t[3][i]};
}

#ifdef NPK_HAVE_PAIRS
// acc + a.even * b.even + a.odd * b.odd, where a and b are vectors of bfloat16 pairs (bfdot).
INLINE vf v_dp(vf acc, vf a, vf b) {
    return (vf)vbfdotq_f32((float32x4_t)acc, (bfloat16x8_t)a, (bfloat16x8_t)b);
}
// Rounds even and odd numbers to pairs of bfloat16, to nearest.
INLINE vf v_pair(vf even, vf odd) { return (vf)(v_round_bf16(even) | v_round_bf16(odd) << 16); }
#endif

// Vectors of sixteen floats: AVX-512 F, BW, VL and DQ, and more if a table requires it. The
// functions are documented in vec_generic.h.

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define AVX512 "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c"
#if defined(NPK_AMX_TILES)
#define ISA(name) name##_amx
#define TARGET_LIST AVX512 ",avx512bf16,amx-tile,amx-bf16"
#elif defined(NPK_HAVE_PAIRS)
#define ISA(name) name##_avx512bf16
#define TARGET_LIST AVX512 ",avx512bf16"
#elif defined(NPK_HAVE_VNNI)
#define ISA(name) name##_avx512vnni
#define TARGET_LIST AVX512 ",avx512vnni"
#else
#define ISA(name) name##_avx512
#define TARGET_LIST AVX512
#endif
#define TARGET __attribute__((unused, target(TARGET_LIST)))
#define INLINE static inline __attribute__((always_inline, unused, target(TARGET_LIST)))
#define VL 16
#define MR 12
#define NV 2
#define VREGS 32
#ifdef NPK_HAVE_PAIRS
#define PAIRED 1
#else
#define PAIRED 0
#endif

typedef __m512 vf;

INLINE vf v_set1(float x) { return _mm512_set1_ps(x); }
INLINE vf v_zero(void) { return _mm512_setzero_ps(); }
INLINE vf v_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void v_store(float *p, vf x) { _mm512_storeu_ps(p, x); }
INLINE __mmask16 v_mask(int n) { return (__mmask16)((1u << n) - 1); }
INLINE vf v_loadn(const float *p, int n) { return _mm512_maskz_loadu_ps(v_mask(n), p); }
INLINE void v_storen(float *p, vf x, int n) { _mm512_mask_storeu_ps(p, v_mask(n), x); }
INLINE vf v_add(vf a, vf b) { return _mm512_add_ps(a, b); }
INLINE vf v_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
INLINE vf v_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
INLINE vf v_div(vf a, vf b) { return _mm512_div_ps(a, b); }
INLINE vf v_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
INLINE vf v_max(vf a, vf b) { return _mm512_max_ps(a, b); }
INLINE vf v_until(float x, vf last, vf y, vf z) {
    return _mm512_mask_mov_ps(z, _mm512_cmp_ps_mask(v_set1(x), last, _CMP_LE_OQ), y);
}
INLINE vf v_over(vf x, vf bound, vf y, vf z) {
    return _mm512_mask_mov_ps(z, _mm512_cmp_ps_mask(x, bound, _CMP_GT_OQ), y);
}
INLINE int v_all_one(vf x) { return _mm512_cmp_ps_mask(x, v_set1(1.0f), _CMP_NEQ_UQ) == 0; }
INLINE __m128 v_quarter(vf x) {
    __m256 y = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    return _mm_add_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
}
INLINE float v_sum(vf x) {
    __m128 a = v_quarter(x);
    a = _mm_add_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_add_ss(a, _mm_movehdup_ps(a)));
}
INLINE vf v_sums(const vf *x, int n) {
    __m128 q[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) q[i] = i < n ? v_quarter(x[i]) : _mm_setzero_ps();
    _MM_TRANSPOSE4_PS(q[0], q[1], q[2], q[3]);
    return _mm512_castps128_ps512(_mm_add_ps(_mm_add_ps(q[0], q[2]), _mm_add_ps(q[1], q[3])));
}
// Each step halves the vectors, until one has all sixteen sums.
INLINE vf v_sums_all(const vf r[VL]) {
    vf t[8], u[4], w[2];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        const vf a = r[i / 4 * 8 + i % 4], b = r[i / 4 * 8 + i % 4 + 4];
        t[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        u[i] = _mm512_add_ps(_mm512_shuffle_f32x4(t[i], t[i + 4], 0x88),
                             _mm512_shuffle_f32x4(t[i], t[i + 4], 0xdd));
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
        w[i] = _mm512_add_ps(_mm512_unpacklo_ps(u[2 * i], u[2 * i + 1]),
                             _mm512_unpackhi_ps(u[2 * i], u[2 * i + 1]));
    return _mm512_add_ps(_mm512_shuffle_ps(w[0], w[1], 0x44), _mm512_shuffle_ps(w[0], w[1], 0xee));
}
INLINE float v_hmax(vf x) { return _mm512_reduce_max_ps(x); }

INLINE vf v_widen(__m256i h) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
INLINE vf v_bf16(const uint16_t *p) { return v_widen(_mm256_loadu_si256((const __m256i *)p)); }
INLINE vf v_f16(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
INLINE vf v_bf16n(const uint16_t *p, int n) {
    return v_widen(_mm256_maskz_loadu_epi16(v_mask(n), p));
}
INLINE vf v_f16n(const uint16_t *p, int n) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(v_mask(n), p));
}
INLINE void v_split(vf pairs, vf *even, vf *odd) {
    __m512i u = _mm512_castps_si512(pairs);
    *even = _mm512_castsi512_ps(_mm512_slli_epi32(u, 16));
    *odd = _mm512_castsi512_ps(_mm512_and_si512(u, _mm512_set1_epi32((int)0xffff0000)));
}
INLINE void v_pairs(const uint16_t *p, vf *even, vf *odd) {
    v_split(v_load((const float *)p), even, odd);
}
INLINE __m256i v_round_bf16(vf x) {
    __m512i u = _mm512_castps_si512(x);
    __m512i r = _mm512_add_epi32(
        u, _mm512_add_epi32(_mm512_set1_epi32(0x7fff),
                            _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1))));
    r = _mm512_mask_or_epi32(r, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), u,
                             _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16));
}
INLINE void v_store_bf16(uint16_t *p, vf x) { _mm256_storeu_si256((__m256i *)p, v_round_bf16(x)); }
INLINE void v_store_bf16n(uint16_t *p, vf x, int n) {
    _mm256_mask_storeu_epi16(p, v_mask(n), v_round_bf16(x));
}

INLINE void v_store_f16(uint16_t *p, vf x) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
INLINE void v_store_f16n(uint16_t *p, vf x, int n) {
    _mm256_mask_storeu_epi16(p, v_mask(n), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

INLINE vf v_scale2(vf x, vf n) { return _mm512_scalef_ps(x, n); }
INLINE vf v_round(vf x) {
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
INLINE vf v_clamp(vf x, float lo, float hi) {
    return _mm512_min_ps(v_set1(hi), _mm512_max_ps(v_set1(lo), x));
}

typedef __m512i vi;

INLINE vi vi_none(void) { return _mm512_setzero_si512(); }
INLINE vi vi_load(const void *p) { return _mm512_loadu_si512(p); }
INLINE vi vi_set1(int32_t x) { return _mm512_set1_epi32(x); }
INLINE vi vi_pair(const int16_t *p) {
    int32_t x;
    memcpy(&x, p, 4);
    return _mm512_set1_epi32(x);
}
INLINE vi vi_and(vi a, uint32_t mask) { return _mm512_and_si512(a, _mm512_set1_epi32((int)mask)); }
INLINE vi vi_or(vi a, vi b) { return _mm512_or_si512(a, b); }
INLINE vi vi_add(vi a, vi b) { return _mm512_add_epi32(a, b); }
INLINE vi vi_based(vi a, vi base) {
    return _mm512_mask_add_epi16(a, _mm512_test_epi16_mask(a, _mm512_set1_epi16(0x0780)), a, base);
}
INLINE vi vi_shr(vi a, int n) { return _mm512_srli_epi32(a, (unsigned)n); }
INLINE vi vi_move(vi a, int n) {
    return n < 0 ? _mm512_srli_epi32(a, (unsigned)-n) : _mm512_slli_epi32(a, (unsigned)n);
}
INLINE vi vi_dot(vi acc, vi a, vi b) {
#ifdef NPK_HAVE_VNNI
    return _mm512_dpwssd_epi32(acc, a, b);
#else
    return _mm512_add_epi32(acc, _mm512_madd_epi16(a, b));
#endif
}
INLINE vf vi_bits(vi a) { return _mm512_castsi512_ps(a); }
INLINE vf vi_float(vi a) { return _mm512_cvtepi32_ps(a); }
INLINE vf v_u8(const uint8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
INLINE vf v_i8(const int8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
INLINE vf v_abs(vf x) { return _mm512_abs_ps(x); }
#ifdef NPK_HAVE_PAIRS
// Look up entries of a table of BF16 by the low five or six bits of every 16.
INLINE vf vi_lookup32(vi table, vi i) {
    return _mm512_castsi512_ps(_mm512_permutexvar_epi16(i, table));
}
INLINE vf vi_lookup64(vi low, vi high, vi i) {
    return _mm512_castsi512_ps(_mm512_permutex2var_epi16(low, i, high));
}
// Converts pairs of bytes to BF16, times 2^-13 less a bias: inserted into the last bits of 2^10
// they are floats.
INLINE vf vi_whole(vi q, float bias) {
    const vf base = _mm512_set1_ps(0x1p10f + bias);
    const vi two10 = _mm512_castps_si512(_mm512_set1_ps(0x1p10f));
    vi even = _mm512_castps_si512(_mm512_sub_ps(
        _mm512_castsi512_ps(_mm512_or_si512(_mm512_and_si512(q, _mm512_set1_epi32(0xff)), two10)),
        base));
    vi odd = _mm512_castps_si512(
        _mm512_sub_ps(_mm512_castsi512_ps(_mm512_or_si512(_mm512_srli_epi32(q, 16), two10)), base));
    // eight bits at most: the low halves are zero
    return _mm512_castsi512_ps(_mm512_or_si512(_mm512_srli_epi32(even, 16), odd));
}
// Swaps the middle two of every four 16-bit numbers.
INLINE vf v_swap_fours(vf x) {
    return _mm512_castsi512_ps(
        _mm512_shufflehi_epi16(_mm512_shufflelo_epi16(_mm512_castps_si512(x), 0xd8), 0xd8));
}
#endif

#if defined(NPK_HAVE_PAIRS) || defined(NPK_AMX_TILES)
// Rounds even and odd numbers to pairs of BF16, to nearest.
INLINE vf v_pair(vf even, vf odd) {
    const __m512i places =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_castsi512_ps(
        _mm512_permutexvar_epi16(places, (__m512i)_mm512_cvtne2ps_pbh(odd, even)));
}
#endif

INLINE void v_transpose(vf r[VL]) {
    vf t[16], u[16];
    for (int i = 0; i < 8; i++) {
        t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
    for (int i = 0; i < 4; i++) {
        u[4 * i] = _mm512_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
        u[4 * i + 1] = _mm512_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
        u[4 * i + 2] = _mm512_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
        u[4 * i + 3] = _mm512_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_f32x4(u[i], u[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(u[i], u[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_f32x4(u[i + 8], u[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_f32x4(u[i + 8], u[i + 12], 0xdd);
    }
    for (int i = 0; i < 8; i++) {
        r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
    }
}

#ifdef NPK_HAVE_PAIRS
// acc + a.even * b.even + a.odd * b.odd, where a and b are vectors of bfloat16 pairs. Subnormal
// inputs and results count as zero.
INLINE vf v_dp(vf acc, vf a, vf b) { return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b); }
// The same with one pair, at a, and all of b. Compilers do not make one instruction of it, which
// takes two thirds of the time of a separate broadcast on Zen 4.
INLINE vf v_dp1(vf acc, const void *a, vf b) {
    __asm__("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(b), "m"(*(const float *)a));
    return acc;
}
#endif

// Vectors of eight floats: AVX2, FMA and F16C. The functions are documented in vec_generic.h.

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define ISA(name) name##_avx2
#define TARGET __attribute__((unused, target("avx2,fma,f16c")))
#define INLINE static inline __attribute__((always_inline, unused, target("avx2,fma,f16c")))
#define VL 8
#define MR 6
#define NV 2
#define VREGS 16
#define PAIRED 0

typedef __m256 vf;

INLINE vf v_set1(float x) { return _mm256_set1_ps(x); }
INLINE vf v_zero(void) { return _mm256_setzero_ps(); }
INLINE vf v_load(const float *p) { return _mm256_loadu_ps(p); }
INLINE void v_store(float *p, vf x) { _mm256_storeu_ps(p, x); }
INLINE __m256i v_mask(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
INLINE vf v_loadn(const float *p, int n) { return _mm256_maskload_ps(p, v_mask(n)); }
INLINE void v_storen(float *p, vf x, int n) { _mm256_maskstore_ps(p, v_mask(n), x); }
INLINE vf v_add(vf a, vf b) { return _mm256_add_ps(a, b); }
INLINE vf v_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
INLINE vf v_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
INLINE vf v_div(vf a, vf b) { return _mm256_div_ps(a, b); }
INLINE vf v_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
INLINE vf v_max(vf a, vf b) { return _mm256_max_ps(a, b); }
INLINE vf v_until(float x, vf last, vf y, vf z) {
    return _mm256_blendv_ps(z, y, _mm256_cmp_ps(v_set1(x), last, _CMP_LE_OQ));
}
INLINE vf v_over(vf x, vf bound, vf y, vf z) {
    return _mm256_blendv_ps(z, y, _mm256_cmp_ps(x, bound, _CMP_GT_OQ));
}
INLINE int v_all_one(vf x) {
    return _mm256_movemask_ps(_mm256_cmp_ps(x, v_set1(1.0f), _CMP_NEQ_UQ)) == 0;
}
INLINE __m128 v_quarter(vf x) {
    return _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
}
INLINE float v_sum(vf x) {
    __m128 a = v_quarter(x);
    a = _mm_add_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_add_ss(a, _mm_movehdup_ps(a)));
}
INLINE vf v_sums(const vf *x, int n) {
    __m128 q[4];
    for (int i = 0; i < 4; i++) q[i] = i < n ? v_quarter(x[i]) : _mm_setzero_ps();
    _MM_TRANSPOSE4_PS(q[0], q[1], q[2], q[3]);
    return _mm256_castps128_ps256(_mm_add_ps(_mm_add_ps(q[0], q[2]), _mm_add_ps(q[1], q[3])));
}
INLINE vf v_sums_all(const vf r[VL]) {
    vf low = _mm256_hadd_ps(_mm256_hadd_ps(r[0], r[1]), _mm256_hadd_ps(r[2], r[3])),
       high = _mm256_hadd_ps(_mm256_hadd_ps(r[4], r[5]), _mm256_hadd_ps(r[6], r[7]));
    return _mm256_add_ps(_mm256_permute2f128_ps(low, high, 0x20),
                         _mm256_permute2f128_ps(low, high, 0x31));
}
INLINE float v_hmax(vf x) {
    __m128 a = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    a = _mm_max_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_max_ss(a, _mm_movehdup_ps(a)));
}

INLINE vf v_bf16(const uint16_t *p) {
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}
INLINE vf v_f16(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
INLINE void v_split(vf pairs, vf *even, vf *odd) {
    __m256i u = _mm256_castps_si256(pairs);
    *even = _mm256_castsi256_ps(_mm256_slli_epi32(u, 16));
    *odd = _mm256_castsi256_ps(_mm256_and_si256(u, _mm256_set1_epi32((int)0xffff0000)));
}
INLINE void v_pairs(const uint16_t *p, vf *even, vf *odd) {
    v_split(v_load((const float *)p), even, odd);
}
INLINE void v_store_bf16(uint16_t *p, vf x) {
    __m256i u = _mm256_castps_si256(x);
    __m256i r = _mm256_add_epi32(
        u, _mm256_add_epi32(_mm256_set1_epi32(0x7fff),
                            _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1))));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    r = _mm256_blendv_epi8(r, _mm256_or_si256(u, _mm256_set1_epi32(0x400000)), nan);
    r = _mm256_srli_epi32(r, 16);
    _mm_storeu_si128((__m128i *)p,
                     _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1)));
}
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

INLINE void v_store_f16(uint16_t *p, vf x) {
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
INLINE void v_store_f16n(uint16_t *p, vf x, int n) {
    uint16_t t[VL];
    v_store_f16(t, x);
    memcpy(p, t, (size_t)n * 2);
}

INLINE vf v_scale2(vf x, vf n) {
    __m256i i = _mm256_cvtps_epi32(n), h = _mm256_srai_epi32(i, 1), one = _mm256_set1_epi32(127);
    vf a = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(h, one), 23));
    vf b =
        _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(i, h), one), 23));
    return _mm256_mul_ps(_mm256_mul_ps(x, a), b);
}
INLINE vf v_round(vf x) {
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// min and max return their second operand if one is NaN: x is second, so that NaN is kept.
INLINE vf v_clamp(vf x, float lo, float hi) {
    return _mm256_min_ps(v_set1(hi), _mm256_max_ps(v_set1(lo), x));
}

typedef __m256i vi;

INLINE vi vi_none(void) { return _mm256_setzero_si256(); }
INLINE vi vi_load(const void *p) { return _mm256_loadu_si256(p); }
INLINE vi vi_set1(int32_t x) { return _mm256_set1_epi32(x); }
INLINE vi vi_pair(const int16_t *p) {
    int32_t x;
    memcpy(&x, p, 4);
    return _mm256_set1_epi32(x);
}
INLINE vi vi_and(vi a, uint32_t mask) { return _mm256_and_si256(a, _mm256_set1_epi32((int)mask)); }
INLINE vi vi_or(vi a, vi b) { return _mm256_or_si256(a, b); }
INLINE vi vi_add(vi a, vi b) { return _mm256_add_epi32(a, b); }
INLINE vi vi_based(vi a, vi base) {
    const vi none =
        _mm256_cmpeq_epi16(_mm256_and_si256(a, _mm256_set1_epi16(0x0780)), _mm256_setzero_si256());
    return _mm256_add_epi16(a, _mm256_andnot_si256(none, base));
}
INLINE vi vi_shr(vi a, int n) { return _mm256_srli_epi32(a, n); }
INLINE vi vi_move(vi a, int n) {
    return n < 0 ? _mm256_srli_epi32(a, -n) : _mm256_slli_epi32(a, n);
}
INLINE vi vi_dot(vi acc, vi a, vi b) { return _mm256_add_epi32(acc, _mm256_madd_epi16(a, b)); }
INLINE vf vi_bits(vi a) { return _mm256_castsi256_ps(a); }
INLINE vf vi_float(vi a) { return _mm256_cvtepi32_ps(a); }
INLINE vf v_u8(const uint8_t *p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
INLINE vf v_i8(const int8_t *p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
INLINE vf v_abs(vf x) { return _mm256_andnot_ps(v_set1(-0.0f), x); }

INLINE void v_transpose(vf r[VL]) {
    vf t[8], u[8];
    for (int i = 0; i < 4; i++) {
        t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++) {
        u[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
        u[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
        u[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
        u[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
    }
}

// The two products of attention for AVX2, in half registers: see tiles_avx2.h for why they are written out.
#pragma once
#include "attention.h"

namespace OD_ISA {

#define OD_UNROLL _Pragma("GCC unroll 16")

template <int NQ>
static inline void score_few(const Scratch& scratch, const bf16* half, int begin, int end, int d, f32x16* out) {
    const int words = d / 2;
    const __m256i upper = _mm256_set1_epi32(int(0xffff0000u));
    for (int block = begin; block < end; block++)
        for (int side = 0; side < 2; side++) {  // eight positions each
            const auto* keys = reinterpret_cast<const __m256i*>(scratch.keys.get() + std::size_t(block) * words) + side;
            __m256 sums[NQ][2];  // of even words, of odd ones
            OD_UNROLL for (int j = 0; j < NQ; j++) sums[j][0] = sums[j][1] = _mm256_setzero_ps();
            for (int i = 0; i < words; i += 2)
                OD_UNROLL for (int odd = 0; odd < 2; odd++) {
                    const __m256i word = _mm256_load_si256(keys + 2 * (i + odd));
                    const __m256 low = (__m256)_mm256_slli_epi32(word, 16), high = (__m256)_mm256_and_si256(word, upper);
                    OD_UNROLL for (int j = 0; j < NQ; j++) {
                        std::int32_t number;
                        std::memcpy(&number, half + std::size_t(j) * d + 2 * (i + odd), 4);
                        const __m256i pair = _mm256_set1_epi32(number);
                        sums[j][odd] = _mm256_fmadd_ps(low, (__m256)_mm256_slli_epi32(pair, 16), sums[j][odd]);
                        sums[j][odd] = _mm256_fmadd_ps(high, (__m256)_mm256_and_si256(pair, upper), sums[j][odd]);
                    }
                }
            OD_UNROLL for (int j = 0; j < NQ; j++) {
                float* to = reinterpret_cast<float*>(out + j * (end - begin) + block - begin) + 8 * side;
                _mm256_store_ps(to, _mm256_add_ps(sums[j][0], sums[j][1]));
            }
        }
}

static inline __m256 widen_eight(const bf16* p) {
    __m128i v;
    std::memcpy(&v, p, 16);
    return (__m256)_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16);
}
static inline __m256 widen_eight(const std::int8_t* p) {
    std::int64_t v;
    std::memcpy(&v, p, 8);
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_cvtsi64_si128(v)));
}

template <class T, int NQ, int C>
static inline void gather_values(const Scratch& scratch, const View<T>& view, const Query* queries, const float* weights,
                                 std::size_t stride, const float* inverse, int part, int first, int len) {
    for (int begin = part; begin < part + 16 * C; begin += 16) {
        __m256 sums[NQ][2];
        OD_UNROLL for (int j = 0; j < NQ; j++) sums[j][0] = sums[j][1] = _mm256_setzero_ps();
        for (int t = first; t < len; t++) {
            const T* row = view.values + scratch.offset[t] + begin;
            const __m256 low = widen_eight(row), high = widen_eight(row + 8);
            OD_UNROLL for (int j = 0; j < NQ; j++) {
                const __m256 weight = _mm256_set1_ps(weights[j * stride + t]);
                sums[j][0] = _mm256_fmadd_ps(weight, low, sums[j][0]);
                sums[j][1] = _mm256_fmadd_ps(weight, high, sums[j][1]);
            }
        }
        OD_UNROLL for (int j = 0; j < NQ; j++)
            OD_UNROLL for (int c = 0; c < 2; c++)
                _mm256_storeu_ps(queries[j].out + begin + 8 * c, sums[j][c] * _mm256_set1_ps(inverse[j]));
    }
}

#undef OD_UNROLL

}  // namespace OD_ISA

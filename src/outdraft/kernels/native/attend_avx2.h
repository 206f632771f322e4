// The two products of attention for AVX2, over keys and values as they stand, in half registers: see tiles_avx2.h for why
// they are written out.
#pragma once
#include "attention.h"
#include "tiles_avx2.h"

namespace OD_ISA {

#define OD_UNROLL _Pragma("GCC unroll 16")

// Sixteen numbers of a row, those of even channels and those of odd ones.
static inline void split(const bf16* p, __m256& even, __m256& odd) {
    const __m256i words = read_ymm(p);
    even = (__m256)_mm256_slli_epi32(words, 16), odd = (__m256)_mm256_and_si256(words, _mm256_set1_epi32(int(0xffff0000u)));
}
static inline void split(const std::int8_t* p, __m256& even, __m256& odd) {
    const __m256i words = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    even = _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(words, 16), 16));
    odd = _mm256_cvtepi32_ps(_mm256_srai_epi32(words, 16));
}
// Sixteen numbers of a query, apart in the same way.
static inline void place_query(float* to, f32x16 v) {
    bf16 half[16];
    narrow(half, v);
    __m256 even, odd;
    split(half, even, odd);
    _mm256_store_ps(to, even), _mm256_store_ps(to + 8, odd);
}

// The sums of eight registers, in order.
static inline __m256 sums_of(const __m256* v) {
    __m256 pairs[4], fours[2];
    OD_UNROLL for (int i = 0; i < 4; i++) pairs[i] = _mm256_unpacklo_ps(v[2 * i], v[2 * i + 1]) + _mm256_unpackhi_ps(v[2 * i], v[2 * i + 1]);
    OD_UNROLL for (int i = 0; i < 2; i++) {
        const __m256d one = (__m256d)pairs[2 * i], other = (__m256d)pairs[2 * i + 1];
        fours[i] = (__m256)_mm256_unpacklo_pd(one, other) + (__m256)_mm256_unpackhi_pd(one, other);
    }
    return _mm256_permute2f128_ps(fours[0], fours[1], 0x20) + _mm256_permute2f128_ps(fours[0], fours[1], 0x31);
}

// Scores of NQ queries for positions [from, to), eight by eight; places from `len` on get that of the last position.
// out: of query 0 and position 0, `stride` from query to query. asks: for the values, which are wanted soon.
template <int NQ, class T>
static inline void score_few(const Scratch& scratch, const View<T>& view, const float* half, int from, int to, int len, float* out,
                             std::size_t stride, bool asks) {
    constexpr int K = NQ > 2 ? 2 : 4;  // keys at once
    const int d = view.head_dim;
    for (int t = from; t < to; t += 8) {
        __m256 whole[NQ][8];
        OD_UNROLL for (int k = 0; k < 8; k += K) {
            const T* keys[K];
            OD_UNROLL for (int i = 0; i < K; i++) {
                const std::size_t at = scratch.offset[t + k + i < len ? t + k + i : len - 1];
                keys[i] = view.keys + at;
                if (asks)
                    for (int c = 0; c < d; c += 64 / int(sizeof(T))) __builtin_prefetch(view.values + at + c);
            }
            __m256 sums[NQ][K];
            OD_UNROLL for (int j = 0; j < NQ; j++) OD_UNROLL for (int i = 0; i < K; i++) sums[j][i] = _mm256_setzero_ps();
            for (int c = 0; c < d; c += 16) {
                __m256 even[K], odd[K];
                OD_UNROLL for (int i = 0; i < K; i++) split(keys[i] + c, even[i], odd[i]);
                OD_UNROLL for (int j = 0; j < NQ; j++) {
                    const float* own = half + std::size_t(j) * d + c;
                    const __m256 first = _mm256_load_ps(own), second = _mm256_load_ps(own + 8);
                    OD_UNROLL for (int i = 0; i < K; i++) {
                        sums[j][i] = _mm256_fmadd_ps(even[i], first, sums[j][i]);
                        sums[j][i] = _mm256_fmadd_ps(odd[i], second, sums[j][i]);
                    }
                }
            }
            OD_UNROLL for (int j = 0; j < NQ; j++) OD_UNROLL for (int i = 0; i < K; i++) whole[j][k + i] = sums[j][i];
        }
        OD_UNROLL for (int j = 0; j < NQ; j++) _mm256_store_ps(out + j * stride + t, sums_of(whole[j]));
    }
}

// Adds values of positions [from, to) to the sums of NQ queries: channels part .. part + 16 W, even ones before odd ones
// in each sixteen. weights: of query 0 and position 0, `stride` from query to query.
template <int NQ, int W, class T>
static inline void add_values(const Scratch& scratch, const View<T>& view, const Query* queries, const float* weights,
                              std::size_t stride, int part, int from, int to) {
    __m256 sums[NQ][2 * W];
    OD_UNROLL for (int j = 0; j < NQ; j++)
        OD_UNROLL for (int c = 0; c < 2 * W; c++) sums[j][c] = _mm256_loadu_ps(queries[j].out + part + 8 * c);
    for (int t = from; t < to; t++) {
        const T* row = view.values + scratch.offset[t] + part;
        OD_UNROLL for (int c = 0; c < W; c++) {
            __m256 even, odd;
            split(row + 16 * c, even, odd);
            OD_UNROLL for (int j = 0; j < NQ; j++) {
                const __m256 weight = _mm256_broadcast_ss(weights + j * stride + t);
                sums[j][2 * c] = _mm256_fmadd_ps(weight, even, sums[j][2 * c]);
                sums[j][2 * c + 1] = _mm256_fmadd_ps(weight, odd, sums[j][2 * c + 1]);
            }
        }
    }
    OD_UNROLL for (int j = 0; j < NQ; j++)
        OD_UNROLL for (int c = 0; c < 2 * W; c++) _mm256_storeu_ps(queries[j].out + part + 8 * c, sums[j][c]);
}

constexpr int kSpan = 128;  // positions whose keys or values the first cache holds, while all queries meet them

// Blocks [begin, end): scores [count, 16 (end - begin)] of all queries, none of which sees position `len`.
template <class T>
static inline void score_blocks(Scratch& scratch, const View<T>& view, int count, int begin, int end, int len) {
    const std::size_t stride = std::size_t(end - begin) * 16;
    float* scores = (float*)scratch.scores.get() - 16 * begin;
    for (int from = 16 * begin; from < 16 * end; from += kSpan)
        each_few(count, [&](auto some, int j) {
            const float* half = scratch.half.get() + std::size_t(j) * view.head_dim;
            score_few<some()>(scratch, view, half, from, std::min(from + kSpan, 16 * end), len, scores + j * stride, stride, !j);
        });
}

// Values are read as they stand.
template <class T>
static inline void lay_values(Scratch&, const View<T>&, int, int) {}

// The queries' outputs from their weights [count, 16 (end - begin)].
template <class T>
static inline void gather(Scratch& scratch, const View<T>& view, const Query* queries, int count, const float* inverse,
                          int begin, int end, int first, int len) {
    const int d = view.head_dim;
    const std::size_t stride = std::size_t(end - begin) * 16;
    const float* weights = (const float*)scratch.scores.get() - 16 * begin;
    for (int j = 0; j < count; j++) std::memset(queries[j].out, 0, sizeof(float) * d);
    for (int from = first; from < len; from += kSpan)
        each_few(count, [&](auto some, int j) {
            constexpr int W = some() < 4 ? 2 : 1;
            for (int part = 0; part < d; part += 16 * W)
                add_values<some(), W>(scratch, view, queries + j, weights + j * stride, stride, part, from, std::min(from + kSpan, len));
        });
    for (int j = 0; j < count; j++)
        for (float* out = queries[j].out; out < queries[j].out + d; out += 16) {
            const __m256 scale = _mm256_set1_ps(inverse[j]);
            const __m256 even = _mm256_loadu_ps(out) * scale, odd = _mm256_loadu_ps(out + 8) * scale;
            const __m256 low = _mm256_unpacklo_ps(even, odd), high = _mm256_unpackhi_ps(even, odd);
            _mm256_storeu_ps(out, _mm256_permute2f128_ps(low, high, 0x20));
            _mm256_storeu_ps(out + 8, _mm256_permute2f128_ps(low, high, 0x31));
        }
}

#undef OD_UNROLL

}  // namespace OD_ISA

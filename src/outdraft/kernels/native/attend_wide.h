// The two products of attention in vectors of sixteen.
#pragma once
#include "attention.h"

namespace OD_ISA {

// Blocks [begin, end): the scores of NQ queries.
template <int NQ>
static inline void score_few(const Scratch& scratch, const bf16* half, int begin, int end, int d, f32x16* out) {
    const int words = d / 2;
    for (int block = begin; block < end; block++) {
        const u32x16* keys = scratch.keys.get() + std::size_t(block) * words;
        f32x16 even[NQ] = {}, odd[NQ] = {};
        for (int i = 0; i < words; i += 2)
            for (int j = 0; j < NQ; j++) {
                std::uint32_t pair[2];
                std::memcpy(pair, half + std::size_t(j) * d + 2 * i, 8);
                even[j] = dot_pair(even[j], (const bf16*)(keys + i), pair[0]);
                odd[j] = dot_pair(odd[j], (const bf16*)(keys + i + 1), pair[1]);
            }
        for (int j = 0; j < NQ; j++) out[j * (end - begin) + block - begin] = even[j] + odd[j];
    }
}

// Channels part .. part + 16 C of the outputs of NQ queries; weights: of position 0, `stride` from query to query.
template <class T, int NQ, int C>
static inline void gather_values(const Scratch& scratch, const View<T>& view, const Query* queries, const float* weights,
                                 std::size_t stride, const float* inverse, int part, int first, int len) {
    f32x16 acc[NQ][C] = {};
    for (int t = first; t < len; t++) {
        const T* row = view.values + scratch.offset[t] + part;
        f32x16 v[C];
        for (int c = 0; c < C; c++) v[c] = widen(row + 16 * c);
        for (int j = 0; j < NQ; j++) {
            const f32x16 weight = set1(weights[j * stride + t]);
            for (int c = 0; c < C; c++) acc[j][c] = fma(weight, v[c], acc[j][c]);
        }
    }
    for (int j = 0; j < NQ; j++)
        for (int c = 0; c < C; c++) store(queries[j].out + part + 16 * c, acc[j][c] * inverse[j]);
}

}  // namespace OD_ISA

// Scores and weighted values with vector instructions: up to four queries share each key word and value row.
#pragma once
#include "attention.h"

namespace OD_ISA {

constexpr int kShare = 4;

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

// Blocks [begin, end): scores [count, 16 (end - begin)] of all queries.
static inline void score_blocks(Scratch& scratch, int count, int begin, int end, int d) {
    for (int j = 0; j < count; j += kShare) {
        const bf16* half = scratch.half.get() + std::size_t(j) * d;
        f32x16* out = scratch.scores.get() + std::size_t(j) * (end - begin);
        switch (count - j) {
            case 1: score_few<1>(scratch, half, begin, end, d, out); break;
            case 2: score_few<2>(scratch, half, begin, end, d, out); break;
            case 3: score_few<3>(scratch, half, begin, end, d, out); break;
            default: score_few<4>(scratch, half, begin, end, d, out); break;
        }
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

template <class T, int NQ>
static inline void gather_some(const Scratch& scratch, const View<T>& view, const Query* queries, const float* weights,
                               std::size_t stride, const float* inverse, int first, int len) {
    int part = 0;
    for (; part + 64 <= view.head_dim; part += 64)
        gather_values<T, NQ, 4>(scratch, view, queries, weights, stride, inverse, part, first, len);
    if (part < view.head_dim)
        gather_values<T, NQ, 2>(scratch, view, queries, weights, stride, inverse, part, first, len);
}

// Values are read as they stand.
template <class T>
static inline void lay_values(Scratch&, const View<T>&, int, int) {}

// The queries' outputs from their weights [count, 16 (end - begin)].
template <class T>
static inline void gather(Scratch& scratch, const View<T>& view, const Query* queries, int count, const float* inverse,
                          int begin, int end, int first, int len) {
    const std::size_t stride = std::size_t(end - begin) * 16;
    const f32x16* scores = scratch.scores.get();
    for (int j = 0; j < count; j += kShare) {
        const float* weights = (const float*)scores + j * stride - begin * 16;
        switch (count - j) {
            case 1: gather_some<T, 1>(scratch, view, queries + j, weights, stride, inverse + j, first, len); break;
            case 2: gather_some<T, 2>(scratch, view, queries + j, weights, stride, inverse + j, first, len); break;
            case 3: gather_some<T, 3>(scratch, view, queries + j, weights, stride, inverse + j, first, len); break;
            default: gather_some<T, 4>(scratch, view, queries + j, weights, stride, inverse + j, first, len); break;
        }
    }
}

}  // namespace OD_ISA

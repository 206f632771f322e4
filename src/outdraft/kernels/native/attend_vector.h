// Scores and weighted values with vector instructions: up to four queries share each key word and value row.
#pragma once
#if defined(__AVX2__) && !defined(__AVX512F__)
#include "attend_avx2.h"
#elif defined(OD_NEON)
#include "attend_neon.h"
#else
#include "attend_wide.h"
#endif

namespace OD_ISA {

constexpr int kShare = 4;

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

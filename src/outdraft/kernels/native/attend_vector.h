// Scores and weighted values with vector instructions: up to four queries share each key word and value row.
#pragma once
#if defined(OD_NEON)
#include "attend_neon.h"
#else
#include "attend_wide.h"
#endif

namespace OD_ISA {

// Blocks [begin, end): scores [count, 16 (end - begin)] of all queries.
template <class T>
static inline void score_blocks(Scratch& scratch, const View<T>& view, int count, int begin, int end, int) {
    const int d = view.head_dim;
    each_few(count, [&](auto some, int j) {
        const bf16* half = scratch.half.get() + std::size_t(j) * d;
        score_few<some()>(scratch, half, begin, end, d, scratch.scores.get() + std::size_t(j) * (end - begin));
    });
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
    each_few(count, [&](auto some, int j) {
        const float* weights = (const float*)scores + j * stride - begin * 16;
        int part = 0;
        for (; part + 64 <= view.head_dim; part += 64)
            gather_values<T, some(), 4>(scratch, view, queries + j, weights, stride, inverse + j, part, first, len);
        if (part < view.head_dim)
            gather_values<T, some(), 2>(scratch, view, queries + j, weights, stride, inverse + j, part, first, len);
    });
}

}  // namespace OD_ISA

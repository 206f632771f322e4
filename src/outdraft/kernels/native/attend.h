// Attention of up to 16 queries over one head: scores, weights, weighted values.
#pragma once
#if defined(__AMX_BF16__)
#include "attend_amx.h"
#elif defined(__AVX2__) && !defined(__AVX512F__)
#include "attend_avx2.h"
#else
#include "attend_vector.h"
#endif

namespace OD_ISA {

// What all queries of a span share: keys and values of positions [from, len) where the products want them.
template <class T>
static inline void lay_out(Scratch& scratch, const View<T>& view, int from, int len) {
    if constexpr (kTransposes) transpose(scratch, view, from, len);
    lay_values(scratch, view, from, len);
}

// At most kQueries queries, over keys that were laid out.
template <class T>
static inline void attend(Scratch& scratch, const View<T>& view, const Query* queries, int count, float scale, float cap) {
    const int d = view.head_dim;
    int first = queries[0].first, len = queries[0].len;
    for (int j = 0; j < count; j++) {
        first = queries[j].first < first ? queries[j].first : first;
        len = queries[j].len > len ? queries[j].len : len;
        Number* half = scratch.half.get() + std::size_t(j) * d;
        for (int i = 0; i < d; i += 16) place_query(half + i, load(queries[j].q + i) * scale);
    }
    const int begin = first / 32 * 2, end = (len + 15) / 16;
    const std::size_t stride = std::size_t(end - begin) * 16;
    score_blocks(scratch, view, count, begin, end, len);
    float* scores = (float*)scratch.scores.get();
    float inverse[kQueries];
    for (int j = 0; j < count; j++) {
        float* own = scores + j * stride;
        inverse[j] = cap > 0 ? soften<T, true>(scratch, queries[j], own, begin, end, cap)
                             : soften<T, false>(scratch, queries[j], own, begin, end, 0);
    }
    gather(scratch, view, queries, count, inverse, begin, end, first, len);
}

}  // namespace OD_ISA

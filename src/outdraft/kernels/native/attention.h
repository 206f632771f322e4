// Attention of a few queries over one head's rows of a cache.
//
//   position   0 .. base-1: the slots of the same number; from base on: the slots of a row's path (a chain: all in order)
//   score      a word is two channels; the words l, l + 16, ... of a row make partial sum l, and the 16 partial sums
//              are added halves onto halves
//
// Up to four queries share each key and value row. For many queries, keys are transposed first in blocks of 16
// positions ([d/2][16] words), so that 16 scores grow side by side; few queries read the rows as they stand. Both add in the
// same order, which is that of a path's positions: a row gets the bits of decoding its path one token at a time,
// whatever tree it stands in and however many rows there are.
#pragma once
#include <vector>

#include "view.h"

namespace OD_ISA {

constexpr int kQueries = 4;  // that share a row
constexpr int kFew = 6;      // up to so many, transposing costs more than it saves

struct Query {
    const float* q;  // [d]
    float* out;      // [d]
    int first, len;  // positions [first, len) are seen
};

struct Scratch {
    int blocks = 0, width = 0;
    outdraft::Buffer<u32x16> keys;                   // [blocks][d/2]: words of two channels for 16 positions
    outdraft::Buffer<f32x16> scores;                 // [kQueries][blocks]
    outdraft::Buffer<f32x16> key_scale, value_scale;  // [blocks], of an int8 cache
    std::vector<std::size_t> offset;                 // [16 blocks] where the row of each position begins
    void reserve(int len, int head_dim) {
        const int wanted = len / 16 + 2;
        if (wanted <= blocks && head_dim <= width) return;
        blocks = 2 * wanted, width = head_dim;
        keys = outdraft::make_buffer<u32x16>(std::size_t(blocks) * width / 2);
        scores = outdraft::make_buffer<f32x16>(std::size_t(blocks) * kQueries);
        key_scale = outdraft::make_buffer<f32x16>(blocks), value_scale = outdraft::make_buffer<f32x16>(blocks);
        offset.resize(blocks * 16);
    }
    template <class T>
    void place(const View<T>& view, int position, int slot) {
        const std::size_t row = view.row(slot);
        offset[position] = row * view.head_dim;
        if constexpr (View<T>::scaled) {
            ((float*)key_scale.get())[position] = view.key_scales[row];
            ((float*)value_scale.get())[position] = view.value_scales[row];
        }
    }
};

// One of four steps that transpose 16 x 16 words: swaps the off-diagonal squares of width S in two rows of them.
template <int S>
static inline void cross(u32x16& a, u32x16& b) {
    u32x16 up, down;  // of two vectors a | b: lane j takes number up[j]
    for (int j = 0; j < 16; j++) {
        up[j] = j & S ? 16 + j - S : j;
        down[j] = j & S ? 16 + j : j + S;
    }
    const u32x16 x = a, y = b;
#if defined(__clang__)
    for (int j = 0; j < 16; j++) {
        a[j] = j & S ? y[j - S] : x[j];
        b[j] = j & S ? y[j] : x[j + S];
    }
#else
    a = __builtin_shuffle(x, y, up);
    b = __builtin_shuffle(x, y, down);
#endif
}
template <int S>
static inline void exchange(u32x16* v) {
    for (int i = 0; i < 16; i++)
        if (!(i & S)) cross<S>(v[i], v[i + S]);
}
// v[0 .. 2S-1] to v[0 .. S-1]: each lane is joined with the lane S away.
template <int S>
static inline void join(u32x16* v) {
    for (int i = 0; i < S; i++) {
        cross<S>(v[i], v[i + S]);
        v[i] = (u32x16)(as_float(v[i]) + as_float(v[i + S]));
    }
}

// Positions [from, len) transposed, in whole blocks; those from `len` on are zero.
template <class T>
static inline void transpose(Scratch& scratch, const View<T>& view, int from, int len) {
    const int count = view.head_dim / 2;
    for (int block = from / 16; block * 16 < len; block++)
        for (int part = 0; part < count; part += 16) {
            u32x16 v[16] = {};
            for (int j = 0; j < 16; j++)
                if (block * 16 + j < len) v[j] = words(view.keys + scratch.offset[block * 16 + j] + 2 * part);
            exchange<8>(v), exchange<4>(v), exchange<2>(v), exchange<1>(v);
            for (int j = 0; j < 16; j++) scratch.keys[std::size_t(block) * count + part + j] = v[j];
        }
}

// The partial sums l, l + S, ... of 16 positions from transposed keys, for queries of bf16.
template <int S, int NQ>
static inline __attribute__((always_inline)) void add_words(const u32x16* keys, const bf16 (*q)[512], int count, int l,
                                                            f32x16* out) {
    if constexpr (S == 16) {
        for (int j = 0; j < NQ; j++) out[j] = f32x16{};
        for (int i = l; i < count; i += 16)
            for (int j = 0; j < NQ; j++) {
                std::uint32_t pair;
                std::memcpy(&pair, q[j] + 2 * i, 4);
                out[j] = dot_pair(out[j], (const bf16*)(keys + i), pair);
            }
    } else {
        f32x16 other[NQ];
        add_words<2 * S, NQ>(keys, q, count, l, out);
        add_words<2 * S, NQ>(keys, q, count, l + S, other);
        for (int j = 0; j < NQ; j++) out[j] += other[j];
    }
}

// The same 16 scores from rows as they stand.
template <class T, int NQ>
static inline void add_rows(const Scratch& scratch, const View<T>& view, const bf16 (*q)[512], int block, int len,
                            f32x16* out) {
    u32x16 sums[NQ][16] = {};
    const int stop = len - block * 16 < 16 ? len - block * 16 : 16;
    for (int p = 0; p < stop; p++) {
        const T* row = view.keys + scratch.offset[block * 16 + p];
        f32x16 acc[NQ] = {};
        for (int i = 0; i < view.head_dim; i += 32) {
            const u32x16 key = words(row + i);
            for (int j = 0; j < NQ; j++) acc[j] = dot_words(acc[j], key, words(q[j] + i));
        }
        for (int j = 0; j < NQ; j++) sums[j][p] = (u32x16)acc[j];
    }
    for (int j = 0; j < NQ; j++) {
        join<8>(sums[j]), join<4>(sums[j]), join<2>(sums[j]), join<1>(sums[j]);
        out[j] = as_float(sums[j][0]);
    }
}

template <class T, int NQ>
static inline void attend(Scratch& scratch, const View<T>& view, const Query* queries, float scale, bool transposed) {
    const int d = view.head_dim;
    const f32x16 lowest = set1(-1e30f);
    const i32x16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    int first = queries[0].first, len = queries[0].len;
    for (int j = 1; j < NQ; j++) {
        first = queries[j].first < first ? queries[j].first : first;
        len = queries[j].len > len ? queries[j].len : len;
    }
    const int begin = first / 16, end = (len + 15) / 16, stride = end - begin;
    alignas(64) bf16 half[NQ][512];
    f32x16 top[NQ];
    for (int j = 0; j < NQ; j++) {
        for (int i = 0; i < d; i += 16) narrow(half[j] + i, load(queries[j].q + i) * scale);
        top[j] = lowest;
    }
    f32x16* scores = scratch.scores.get();
    for (int block = begin; block < end; block++) {
        f32x16 found[NQ];
        if (transposed) add_words<1, NQ>(scratch.keys.get() + std::size_t(block) * d / 2, half, d / 2, 0, found);
        else add_rows<T, NQ>(scratch, view, half, block, len, found);
        for (int j = 0; j < NQ; j++) {
            const i32x16 place = lane + block * 16;
            if constexpr (View<T>::scaled) found[j] *= scratch.key_scale[block];
            const f32x16 score = ((place >= queries[j].first) & (place < queries[j].len)) ? found[j] : lowest;
            top[j] = max(top[j], score);
            scores[j * stride + block - begin] = score;
        }
    }
    float inverse[NQ];
    for (int j = 0; j < NQ; j++) {
        const f32x16 high = set1(largest(top[j]));
        f32x16 total = {};
        for (int b = 0; b < stride; b++) {
            f32x16 e = exp(scores[j * stride + b] - high);
            total += e;
            if constexpr (View<T>::scaled) e *= scratch.value_scale[begin + b];
            scores[j * stride + b] = e;
        }
        inverse[j] = 1.0f / sum(total);
    }
    const float* weights = (const float*)scores;
    for (int part = 0; part < d; part += 64) {
        const int lanes = d - part < 64 ? (d - part) / 16 : 4;
        f32x16 acc[NQ][4] = {};
        for (int t = first; t < len; t++) {
            const T* row = view.values + scratch.offset[t] + part;
            f32x16 v[4] = {};
            for (int c = 0; c < lanes; c++) v[c] = widen(row + 16 * c);
            for (int j = 0; j < NQ; j++) {
                const f32x16 weight = set1(weights[std::size_t(j) * stride * 16 + t - begin * 16]);
                for (int c = 0; c < 4; c++) acc[j][c] = fma(weight, v[c], acc[j][c]);
            }
        }
        for (int j = 0; j < NQ; j++)
            for (int c = 0; c < lanes; c++) store(queries[j].out + part + 16 * c, acc[j][c] * inverse[j]);
    }
}

template <class T>
static inline void attend_some(Scratch& scratch, const View<T>& view, const Query* queries, int count, float scale,
                               bool transposed) {
    switch (count) {
        case 4: attend<T, 4>(scratch, view, queries, scale, transposed); break;
        case 3: attend<T, 3>(scratch, view, queries, scale, transposed); break;
        case 2: attend<T, 2>(scratch, view, queries, scale, transposed); break;
        default: attend<T, 1>(scratch, view, queries, scale, transposed); break;
    }
}

}  // namespace OD_ISA

// Attention of a few queries over one head's rows of a cache.
//
//   position   0 .. base-1: the slots of the same number; from base on: the slots of a row's path (a chain: all in order)
//
// Keys are transposed in blocks of 16 positions ([d/2][16] words of two channels), so that 16 scores grow side by side;
// a block is also what the matrix unit multiplies. Every sum runs in the order of channels or of a path's positions: a
// row gets the bits of decoding its path one token at a time, whatever tree it stands in and however many rows there are.
#pragma once
#include <vector>

#include "amx.h"
#include "view.h"

namespace OD_ISA {

constexpr int kQueries = 16;  // that share the transposed keys
constexpr int kShare = 4;     // that share a value row in registers

struct Query {
    const float* q;  // [d]
    float* out;      // [d]
    int first, len;  // positions [first, len) are seen
};

struct Scratch {
    int blocks = 0, width = 0;
    outdraft::Buffer<u32x16> keys;                    // [blocks][d/2]: words of two channels for 16 positions
    outdraft::Buffer<f32x16> scores;                  // [kQueries][blocks]
    outdraft::Buffer<bf16> half;                      // [kQueries][d]: the queries
    outdraft::Buffer<f32x16> key_scale, value_scale;  // [blocks], of an int8 cache
    std::vector<std::size_t> offset;                  // [16 blocks] where the row of each position begins
    void reserve(int len, int head_dim) {
        const int wanted = len / 16 + 2;
        if (wanted <= blocks && head_dim <= width) return;
        blocks = 2 * wanted, width = head_dim;
        keys = outdraft::make_buffer<u32x16>(std::size_t(blocks) * width / 2);
        scores = outdraft::make_buffer<f32x16>(std::size_t(blocks) * kQueries);
        half = outdraft::make_buffer<bf16>(std::size_t(width) * kQueries);
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

// One of four steps that transpose 16 x 16 words: swaps the off-diagonal squares of width S.
template <int S>
static inline void exchange(u32x16* v) {
    u32x16 up, down;  // of two vectors a | b: lane j takes number up[j]
    for (int j = 0; j < 16; j++) {
        up[j] = j & S ? 16 + j - S : j;
        down[j] = j & S ? 16 + j : j + S;
    }
    for (int i = 0; i < 16; i++) {
        if (i & S) continue;
        const u32x16 a = v[i], b = v[i + S];
#if defined(__clang__)
        for (int j = 0; j < 16; j++) {
            v[i][j] = j & S ? b[j - S] : a[j];
            v[i + S][j] = j & S ? b[j] : a[j + S];
        }
#else
        v[i] = __builtin_shuffle(a, b, up);
        v[i + S] = __builtin_shuffle(a, b, down);
#endif
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
                if (block * 16 + j < len) {
                    const std::size_t at = scratch.offset[block * 16 + j] + 2 * part;
                    v[j] = words(view.keys + at);
                    __builtin_prefetch(view.values + at);  // they are wanted soon
                }
            exchange<8>(v), exchange<4>(v), exchange<2>(v), exchange<1>(v);
            for (int j = 0; j < 16; j++) scratch.keys[std::size_t(block) * count + part + j] = v[j];
        }
}

#if defined(__AMX_BF16__)
// Blocks [begin, end): scores [count, 16 (end - begin)] of all queries, four blocks at once.
static inline void score_blocks(Scratch& scratch, int count, int begin, int end, int d) {
    const int words = d / 2, stride = (end - begin) * 64;  // bytes of a query's scores
    const bf16* half = scratch.half.get();
    configure_tiles(count);
    for (int block = begin; block < end; block += 4) {
        const u32x16* keys = scratch.keys.get() + std::size_t(block) * words;
        f32x16* out = scratch.scores.get() + block - begin;
#define OD_SUM(i, b)                                        \
    if (block + i < end) {                                  \
        _tile_loadd(b, keys + i * words + part, 64);        \
        _tile_dpbf16ps(i, 4, b);                            \
    }
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (int part = 0; part < words; part += 16) {
            _tile_loadd(4, half + 2 * part, 2 * d);
            OD_SUM(0, 6)
            OD_SUM(1, 7)
            OD_SUM(2, 6)
            OD_SUM(3, 7)
        }
#undef OD_SUM
        _tile_stored(0, out, stride);
        if (block + 1 < end) { _tile_stored(1, out + 1, stride); }
        if (block + 2 < end) { _tile_stored(2, out + 2, stride); }
        if (block + 3 < end) { _tile_stored(3, out + 3, stride); }
    }
    _tile_release();
}
#else
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
#endif

// Scores to weights, in place; returns 1 / their sum.
template <class T>
static inline float soften(const Scratch& scratch, const Query& query, f32x16* scores, int begin, int end) {
    const i32x16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const f32x16 lowest = set1(-1e30f);
    f32x16 top = lowest, total = {};
    for (int block = begin; block < end; block++) {
        const i32x16 place = lane + block * 16;
        f32x16 score = scores[block - begin];
        if constexpr (View<T>::scaled) score *= scratch.key_scale[block];
        score = ((place >= query.first) & (place < query.len)) ? score : lowest;
        top = max(top, score);
        scores[block - begin] = score;
    }
    const f32x16 high = set1(largest(top));
    for (int block = begin; block < end; block++) {
        f32x16 e = exp(scores[block - begin] - high);
        total += e;
        if constexpr (View<T>::scaled) e *= scratch.value_scale[block];
        scores[block - begin] = e;
    }
    return 1.0f / sum(total);
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

// At most kQueries queries, over keys that are transposed.
template <class T>
static inline void attend(Scratch& scratch, const View<T>& view, const Query* queries, int count, float scale) {
    const int d = view.head_dim;
    int first = queries[0].first, len = queries[0].len;
    for (int j = 0; j < count; j++) {
        first = queries[j].first < first ? queries[j].first : first;
        len = queries[j].len > len ? queries[j].len : len;
        bf16* half = scratch.half.get() + std::size_t(j) * d;
        for (int i = 0; i < d; i += 16) narrow(half + i, load(queries[j].q + i) * scale);
    }
    const int begin = first / 16, end = (len + 15) / 16;
    const std::size_t stride = std::size_t(end - begin) * 16;
    score_blocks(scratch, count, begin, end, d);
    f32x16* scores = scratch.scores.get();
    float inverse[kQueries];
    for (int j = 0; j < count; j++) inverse[j] = soften<T>(scratch, queries[j], scores + j * stride / 16, begin, end);
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

// Attention of a few rows over a contiguous cache, for one key/value head of one sequence.
//
//   keys, values [capacity, d] bf16; rows of this pass stand at base + row already
//   row r sees slots 0..base-1, then base + path[0], base + path[1], ... (a chain: all rows up to itself)
//
// Keys are transposed in blocks of 16 ([d/2][16][2]) so that 16 scores grow side by side; up to four queries share each
// block and each value row. The order of every sum is that of the path's positions, so a row gets the bits of
// decoding its path one token at a time, whatever tree it stands in.
#pragma once
#include <vector>

#include "model.h"
#include "simd.h"

namespace OD_ISA {

constexpr int kQueries = 4;

struct View {  // one head of one sequence in one layer
    const bf16* keys;
    const bf16* values;
    const std::int32_t* pages;
    std::int64_t page_rows;
    int base, head_dim;
    std::size_t offset(int slot) const {
        return std::size_t(pages[slot / outdraft::kPage] * page_rows + slot % outdraft::kPage) * head_dim;
    }
};

struct Query {
    const float* q;  // [d]
    float* out;      // [d]
    int first, len;  // positions [first, len) are seen
};

struct Scratch {
    int blocks = 0, width = 0;
    outdraft::Buffer<u32x16> keys;      // [blocks][d/2]: words of two channels for 16 positions
    outdraft::Buffer<f32x16> scores;    // [kQueries][blocks]
    std::vector<const bf16*> values;    // [16 blocks] row of each position
    std::vector<int> slots;             // [16 blocks] cache slot of each position
    void reserve(int len, int head_dim) {
        const int wanted = len / 16 + 2;
        if (wanted <= blocks && head_dim <= width) return;
        blocks = 2 * wanted, width = head_dim;
        keys = outdraft::make_buffer<u32x16>(std::size_t(blocks) * width / 2);
        scores = outdraft::make_buffer<f32x16>(std::size_t(blocks) * kQueries);
        values.resize(blocks * 16), slots.resize(blocks * 16);
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

// Positions 16 * block .. of the scratch from their slots; those from `len` on are zero.
static inline void transpose_block(Scratch& scratch, const View& view, int block, int len) {
    const int words = view.head_dim / 2;
    for (int part = 0; part < words; part += 16) {
        u32x16 v[16] = {};
        for (int j = 0; j < 16; j++) {
            const int position = block * 16 + j;
            if (position < len)
                std::memcpy(&v[j], view.keys + view.offset(scratch.slots[position]) + 2 * part, 64);
        }
        exchange<8>(v), exchange<4>(v), exchange<2>(v), exchange<1>(v);
        for (int j = 0; j < 16; j++) scratch.keys[std::size_t(block) * words + part + j] = v[j];
    }
}

// Which slot stands at each position from `from` on, and its transposed keys.
static inline void lay_out(Scratch& scratch, const View& view, int from, int len) {
    for (int t = from; t < len; t++) scratch.values[t] = view.values + view.offset(scratch.slots[t]);
    for (int block = from / 16; block * 16 < len; block++) transpose_block(scratch, view, block, len);
}

template <int NQ>
static inline void attend(Scratch& scratch, const View& view, const Query* queries, float scale) {
    const int d = view.head_dim, words = d / 2;
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
        const u32x16* keys = scratch.keys.get() + std::size_t(block) * words;
        f32x16 even[NQ] = {}, odd[NQ] = {};
        for (int i = 0; i < words; i += 2)
            for (int j = 0; j < NQ; j++) {
                std::uint32_t pair[2];
                std::memcpy(pair, half[j] + 2 * i, 8);
                even[j] = dot_pair(even[j], (const bf16*)(keys + i), pair[0]);
                odd[j] = dot_pair(odd[j], (const bf16*)(keys + i + 1), pair[1]);
            }
        for (int j = 0; j < NQ; j++) {
            const i32x16 place = lane + block * 16;
            f32x16 score = even[j] + odd[j];
            score = (place >= queries[j].first) & (place < queries[j].len) ? score : lowest;
            top[j] = max(top[j], score);
            scores[j * stride + block - begin] = score;
        }
    }
    float inverse[NQ];
    for (int j = 0; j < NQ; j++) {
        const f32x16 high = set1(largest(top[j]));
        f32x16 total = {};
        for (int b = 0; b < stride; b++) {
            const f32x16 e = exp(scores[j * stride + b] - high);
            scores[j * stride + b] = e;
            total += e;
        }
        inverse[j] = 1.0f / sum(total);
    }
    const float* weights = (const float*)scores;
    for (int part = 0; part < d; part += 64) {
        const int lanes = d - part < 64 ? (d - part) / 16 : 4;
        f32x16 acc[NQ][4] = {};
        for (int t = first; t < len; t++) {
            const bf16* row = scratch.values[t] + part;
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

static inline void attend_some(Scratch& scratch, const View& view, const Query* queries, int count, float scale) {
    switch (count) {
        case 4: attend<4>(scratch, view, queries, scale); break;
        case 3: attend<3>(scratch, view, queries, scale); break;
        case 2: attend<2>(scratch, view, queries, scale); break;
        default: attend<1>(scratch, view, queries, scale); break;
    }
}

}  // namespace OD_ISA

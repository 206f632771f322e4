// Attention of a few queries over one head's rows of a cache.
//
//   position   0 .. base-1: the slots of the same number; from base on: the slots of a row's path (a chain: all in order)
//
// Keys are transposed in blocks of 16 positions ([d/2][16] words of two channels), so that 16 scores grow side by side;
// a block is also what the matrix unit multiplies. AVX2 has too few registers for that: it reads keys as they stand. What
// follows is in attend_amx.h, attend_avx2.h and attend_vector.h. Every sum runs in an order that channels or a path's
// positions alone decide: a row gets the bits of decoding its path one token at a time, whatever tree it stands in and
// however many rows there are.
#pragma once
#include <utility>
#include <vector>

#include "rows.h"
#include "view.h"

namespace OD_ISA {

constexpr int kQueries = 16;  // that share keys

struct Query {
    const float* q;  // [d]
    float* out;      // [d]
    int first, len;  // positions [first, len) are seen
};

#if defined(__AVX2__) && !defined(__AVX512F__)
constexpr bool kTransposes = false;
using Number = float;  // of a query, as rounded to bf16
#else
constexpr bool kTransposes = true;
using Number = bf16;
static inline void place_query(bf16* to, f32x16 v) { narrow(to, v); }
#endif

struct Scratch {
    int blocks = 0, width = 0;
    outdraft::Buffer<u32x16> keys;                    // [blocks][d/2]: words of two channels for 16 positions
    outdraft::Buffer<f32x16> scores;                  // [kQueries][blocks]
    outdraft::Buffer<Number> half;                    // [kQueries][d]: the queries
    outdraft::Buffer<u32x16> values;                  // [8 blocks][d]: words of two positions (attend_amx.h)
    outdraft::Buffer<bf16> high, low;                 // [kQueries][16 blocks]: weights in two parts (attend_amx.h)
    outdraft::Buffer<f32x16> key_scale, value_scale;  // [blocks], of an int8 cache
    std::vector<std::size_t> offset;                  // [16 blocks] where the row of each position begins
    void reserve(int len, int head_dim) {
        const int wanted = len / 16 + 4;
        if (wanted <= blocks && head_dim <= width) return;
        blocks = 0;  // until all of it is there
        const int more = 2 * wanted;
        if (kTransposes) keys = outdraft::make_buffer<u32x16>(std::size_t(more) * head_dim / 2);
        scores = outdraft::make_buffer<f32x16>(std::size_t(more) * kQueries);
        half = outdraft::make_buffer<Number>(std::size_t(head_dim) * kQueries);
        values = outdraft::make_buffer<u32x16>(std::size_t(more) * head_dim / 2);
        high = outdraft::make_buffer<bf16>(std::size_t(more) * 16 * kQueries);
        low = outdraft::make_buffer<bf16>(std::size_t(more) * 16 * kQueries);
        key_scale = outdraft::make_buffer<f32x16>(more), value_scale = outdraft::make_buffer<f32x16>(more);
        offset.resize(more * 16);
        blocks = more, width = head_dim;
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

// Not inlined: a compiler that knows whose it is asks for its address again and again in the loops.
__attribute__((noinline)) static Scratch& own_scratch() {
    static thread_local Scratch own;
    return own;
}

// work(how many, the first of them): up to four queries share each key and each row of values.
template <class F>
static inline void each_few(int count, F work) {
    for (int j = 0; j < count; j += 4) switch (count - j) {
        case 1: work(std::integral_constant<int, 1>(), j); break;
        case 2: work(std::integral_constant<int, 2>(), j); break;
        case 3: work(std::integral_constant<int, 3>(), j); break;
        default: work(std::integral_constant<int, 4>(), j);
    }
}

// One of four steps that transpose 16 x 16 words: swaps the off-diagonal squares of width S.
template <int S, int... J>
static inline void exchange_lanes(Words& a, Words& b, std::integer_sequence<int, J...>) {
    const Words both = __builtin_shufflevector(a, b, (J & S ? kLanes + J - S : J)...);
    b = __builtin_shufflevector(a, b, (J & S ? kLanes + J : J + S)...);
    a = both;
}
template <int S>
static inline void exchange(Words (&v)[16][kParts]) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
#pragma GCC unroll 4
        for (int p = 0; p < kParts; p++) {
            if (i & S) continue;
            if constexpr (S < kLanes) exchange_lanes<S>(v[i][p], v[i + S][p], std::make_integer_sequence<int, kLanes>());
            else if (!(p & S / kLanes)) std::swap(v[i][p + S / kLanes], v[i + S][p]);
        }
}

// Keys of positions [from, len) transposed, in whole blocks; those from `len` on are zero.
template <class T>
static inline void transpose(Scratch& scratch, const View<T>& view, int from, int len) {
    const int count = view.head_dim / 2;
    for (int block = from / 16; block * 16 < len; block++)
        for (int part = 0; part < count; part += 16) {
            Words v[16][kParts];
#pragma GCC unroll 16
            for (int j = 0; j < 16; j++) {
                u32x16 row{};
                if (block * 16 + j < len) {
                    const std::size_t at = scratch.offset[block * 16 + j] + 2 * part;
                    row = words(view.keys + at);
                    __builtin_prefetch(view.values + at);  // they are wanted soon
                }
                for (int p = 0; p < kParts; p++) v[j][p] = part_of(row, p);
            }
            exchange<8>(v), exchange<4>(v), exchange<2>(v), exchange<1>(v);
            u32x16* to = scratch.keys.get() + std::size_t(block) * count + part;
#pragma GCC unroll 16
            for (int j = 0; j < 16; j++) std::memcpy(to + j, v[j], sizeof v[j]);
        }
}

// Scores to weights, in place; returns 1 / their sum. cap: bounds the scores softly, where they are `Capped`.
template <class T, bool Capped>
static inline float soften(const Scratch& scratch, const Query& query, float* scores, int begin, int end, float cap) {
    Ints lanes;
    for (int i = 0; i < kLanes; i++) lanes[i] = i;
    const Floats lowest = Floats{} - 1e30f;
    Floats tops[kParts], totals[kParts] = {};
    for (Floats& top : tops) top = lowest;
    const auto each = [&](auto work) {  // of the places from `at` on, whose scores are x
        for (int block = begin; block < end; block++)
#pragma GCC unroll 4
            for (int p = 0; p < kParts; p++) {
                float* x = scores + (block - begin) * 16 + p * kLanes;
                store_part(x, work(load_part(x), block * 16 + p * kLanes, p));
            }
    };
    each([&](Floats score, int at, int p) {
        if constexpr (View<T>::scaled) score *= load_part((const float*)scratch.key_scale.get() + at);
        if constexpr (Capped) score = soft_cap_of(score, cap);
        const Ints place = lanes + at;
        score = (place >= query.first) & (place < query.len) ? score : lowest;
        tops[p] = larger(tops[p], score);
        return score;
    });
    const float top = fold<float, 16>((const float*)tops, larger);
    each([&](Floats score, int at, int p) {
        const Floats e = exp_of(score - top);
        totals[p] += e;
        if constexpr (!View<T>::scaled) return e;
        // Where a weight is 0, no text's NaN meets another.
        return e > Floats{} ? e * load_part((const float*)scratch.value_scale.get() + at) : e;
    });
    return 1.0f / fold<float, 16>((const float*)totals, added);
}

}  // namespace OD_ISA

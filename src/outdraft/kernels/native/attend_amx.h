// Scores and weighted values on Intel's matrix unit, for up to 16 queries at once.
//
// A weight is split into two bf16 numbers, high + low, so that it keeps sixteen bits; values stand in words of two
// positions. Sums of values run in steps of 32 positions that begin at multiples of 32, for every caller.
#pragma once
#include "amx.h"
#include "attention.h"

namespace OD_ISA {

// Blocks [begin, end): scores [count, 16 (end - begin)] of all queries, four blocks at once.
template <class T>
static inline void score_blocks(Scratch& scratch, const View<T>& view, int count, int begin, int end, int) {
    const int d = view.head_dim, words = d / 2, stride = (end - begin) * 64;  // bytes of a query's scores
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

// Values of positions [from, len) in words of two positions, in steps of 32; those from `len` on are zero.
template <class T>
static inline void lay_values(Scratch& scratch, const View<T>& view, int from, int len) {
    const int d = view.head_dim;
    for (int pair = from / 32 * 16; 2 * pair < (len + 31) / 32 * 32; pair++) {
        u32x16* to = scratch.values.get() + std::size_t(pair) * d / 16;
        const bool has[2] = {2 * pair < len, 2 * pair + 1 < len};
        for (int i = 0; i < d; i += 16) {
            u32x16 both = {};
            if (has[0]) both = halves(view.values + scratch.offset[2 * pair] + i);
            if (has[1]) both |= halves(view.values + scratch.offset[2 * pair + 1] + i) << 16;
            to[i / 16] = both;
        }
    }
}

// The queries' outputs from their weights [count, 16 (end - begin)]; begin is even.
template <class T>
static inline void gather(Scratch& scratch, const View<T>& view, const Query* queries, int count, const float* inverse,
                          int begin, int end, int, int) {
    const int d = view.head_dim, steps = (end - begin + 1) / 2, stride = 32 * steps;
    for (int j = 0; j < count; j++) {
        const f32x16* weights = scratch.scores.get() + std::size_t(j) * (end - begin);
        bf16 *high = scratch.high.get() + j * stride, *low = scratch.low.get() + j * stride;
        for (int b = 0; b < 2 * steps; b++) {
            const f32x16 weight = b < end - begin ? weights[b] : f32x16{};
            narrow(high + 16 * b, weight);
            narrow(low + 16 * b, weight - widen(high + 16 * b));
        }
    }
    const u32x16* values = scratch.values.get() + std::size_t(begin) * d / 2;
    alignas(64) float sums[kQueries][64];
    configure_tiles(count);
    for (int part = 0; part < d; part += 64) {
        const bool wide = d - part >= 64;
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
#define OD_SUM(i, b)                                                    \
    _tile_loadd(b, values + (std::size_t(s) * 16 * d + part) / 16 + i, 4 * d); \
    _tile_dpbf16ps(i, 4, b);                                            \
    _tile_dpbf16ps(i, 5, b);
        for (int s = 0; s < steps; s++) {
            _tile_loadd(4, scratch.high.get() + 32 * s, 2 * stride);
            _tile_loadd(5, scratch.low.get() + 32 * s, 2 * stride);
            OD_SUM(0, 6)
            OD_SUM(1, 7)
            if (!wide) continue;
            OD_SUM(2, 6)
            OD_SUM(3, 7)
        }
#undef OD_SUM
        _tile_stored(0, sums[0], 256);
        _tile_stored(1, sums[0] + 16, 256);
        if (wide) {
            _tile_stored(2, sums[0] + 32, 256);
            _tile_stored(3, sums[0] + 48, 256);
        }
        for (int j = 0; j < count; j++)
            for (int i = 0; i < (wide ? 64 : 32); i += 16) store(queries[j].out + part + i, load(sums[j] + i) * inverse[j]);
    }
    _tile_release();
}

}  // namespace OD_ISA

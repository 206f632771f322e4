// Products with weights of 8 or 4 bits that have a scale for each group of inputs: int8g and int4.
//
// A step of 32 or 128 inputs is one exact integer sum; it is scaled and added to the row's float sum, step after step. A
// tile is one strip of 16 outputs times up to 12 rows, so that weights are taken apart once for all of them; for one row
// it may be more strips, whose bytes are read side by side.
#pragma once
#include "operand.h"

namespace OD_ISA {

// Calls use(j, word) for the 8 words of 4 inputs each that 32 inputs of a strip of 16 outputs are; returns what follows.
template <bool Nibbles, class Use>
static inline const std::uint8_t* each_word(const std::uint8_t* w, Use use) {
#pragma GCC unroll 8
    for (int j = 0; j < (Nibbles ? 4 : 8); j++, w += 64) {
        u32x16 word;
        std::memcpy(&word, w, 64);
        if (!Nibbles) use(j, (u8x64)word);
        else use(j, (u8x64)(word & 0x0f0f0f0fu)), use(j + 4, (u8x64)((word >> 4) & 0x0f0f0f0fu));
    }
    return w;
}

constexpr int kAhead = 8192;  // bytes that are asked for in time
#if defined(__AVX512F__)
constexpr int kTallGrouped = 12;
#else
constexpr int kTallGrouped = 2;
#endif

#if defined(__AMX_INT8__)
constexpr int kStrips = 4;  // that one row reads side by side: a Xeon's memory answers four streams sooner
#else
constexpr int kStrips = 1;  // and an EPYC's one
#endif

// R rows of S strips from `first` on; Parts times 32 inputs make a step.
template <bool Nibbles, int Parts, int R, int S>
static inline void tile_strips(const Matrix& m, int first, const Operand& x, int row, float* out, std::size_t stride) {
    const int k_size = m.num_in, steps = k_size / (Parts * kGroup);
    const std::size_t line = line_bytes(m);
    const std::uint8_t* w[S];
    const std::uint16_t* scales[S];
    for (int c = 0; c < S; c++) w[c] = m.strip(first + c), scales[c] = m.strip_scales(first + c);
    const std::uint8_t* lines = x.bytes + row * line;
    const float* line_scales = x.scales + std::size_t(row) * steps;
    const std::int32_t* offsets = x.offsets + std::size_t(row) * steps;
    f32x16 acc[R][S] = {};
    for (int g = 0; g < steps; g++)
        for (int c = 0; c < S; c++) {
            const f32x16 scale = widen_half(scales[c] + 16 * g);
            const auto add = [&](int r, i32x16 whole) {
                acc[r][c] = fma(to_float(whole), scale * line_scales[std::size_t(r) * steps + g], acc[r][c]);
            };
            if constexpr (Parts == 1) {  // a row's sum is scaled while the next row's is made
                for (int i = 0; i < (Nibbles ? 256 : 512); i += 64) __builtin_prefetch(w[c] + kAhead / S + i);
                u8x64 words[8];
                w[c] = each_word<Nibbles>(w[c], [&](int j, u8x64 word) { words[j] = word; });
#pragma GCC unroll 16
                for (int r = 0; r < R; r++) {
                    const std::uint8_t* bytes = lines + r * line + g * kGroup;
                    i32x16 whole = set1(offsets[std::size_t(r) * steps + g]);
#pragma GCC unroll 8
                    for (int j = 0; j < 8; j++) whole = dot_bytes(whole, words[j], (i8x64)repeat_word(bytes + 4 * j));
                    add(r, whole);
                }
                continue;
            }
            i32x16 whole[R];
#pragma GCC unroll 16
            for (int r = 0; r < R; r++) whole[r] = set1(offsets[std::size_t(r) * steps + g]);
#pragma GCC unroll 1  // one or two rows would take half as long again unrolled
            for (int part = 0; part < Parts; part++) {
                for (int i = 0; i < (Nibbles ? 256 : 512); i += 64) __builtin_prefetch(w[c] + kAhead / S + i);
                const std::uint8_t* bytes = lines + (g * Parts + part) * kGroup;
                w[c] = each_word<Nibbles>(w[c], [&](int j, u8x64 word) {
#pragma GCC unroll 16
                    for (int r = 0; r < R; r++)
                        whole[r] = dot_bytes(whole[r], word, (i8x64)repeat_word(bytes + r * line + 4 * j));
                });
            }
#pragma GCC unroll 16
            for (int r = 0; r < R; r++) add(r, whole[r]);
        }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int c = 0; c < S; c++) store(out + r * stride + 16 * c, acc[r][c]);
}

// R rows of a block of 64 outputs.
template <bool Nibbles, int R>
static inline void tile_grouped(const Matrix& m, int block, const Operand& x, int row, float* out, std::size_t stride) {
    constexpr int S = R == 1 ? kStrips : 1;
    for (int c = 0; c < 4; c += S)
        if (m.step == kGroup) tile_strips<Nibbles, 1, R, S>(m, 4 * block + c, x, row, out + 16 * c, stride);
        else tile_strips<Nibbles, kWideGroup / kGroup, R, S>(m, 4 * block + c, x, row, out + 16 * c, stride);
}

}  // namespace OD_ISA

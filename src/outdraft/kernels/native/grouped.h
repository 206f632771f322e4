// Products with weights of 8 or 4 bits that have a scale for each group of inputs: int8g and int4.
//
// A step of 32 or 128 inputs is one exact integer sum; it is scaled and added to the row's float sum, step after step. A
// tile is one strip of 16 outputs times up to 12 rows, so that weights are taken apart once for all of them; for one row
// it is four strips, whose bytes are read side by side.
#pragma once
#include "operand.h"

namespace OD_ISA {

// 32 inputs of a strip of 16 outputs: 8 words of 4 inputs each.
template <bool Nibbles>
static inline const std::uint8_t* read_group(const std::uint8_t* w, u8x64* words) {
    if (!Nibbles) {
        std::memcpy(words, w, 512);
        return w + 512;
    }
    for (int j = 0; j < 4; j++, w += 64) {
        u32x16 pair;
        std::memcpy(&pair, w, 64);
        words[j] = (u8x64)(pair & 0x0f0f0f0fu);
        words[j + 4] = (u8x64)((pair >> 4) & 0x0f0f0f0fu);
    }
    return w;
}

constexpr int kAhead = 8192;  // bytes that are asked for in time
#if defined(__AVX512F__)
constexpr int kTallGrouped = 12;
#else
constexpr int kTallGrouped = 2;
#endif

// R rows of S strips from `first` on; Parts times 32 inputs make a step.
template <bool Nibbles, int Parts, int R, int S>
static inline void tile_strips(const Matrix& m, int first, const Operand& x, int row, float* out, std::size_t stride) {
    const int k_size = m.num_in, steps = k_size / (Parts * kGroup);
    const std::uint8_t* w[S];
    const std::uint16_t* scales[S];
    for (int c = 0; c < S; c++) w[c] = m.strip(first + c), scales[c] = m.strip_scales(first + c);
    const std::uint8_t* lines = x.bytes + std::size_t(row) * k_size;
    const float* line_scales = x.scales + std::size_t(row) * steps;
    const std::int32_t* offsets = x.offsets + std::size_t(row) * steps;
    f32x16 acc[R][S] = {};
    for (int g = 0; g < steps; g++)
        for (int c = 0; c < S; c++) {
            i32x16 whole[R];
            for (int r = 0; r < R; r++) whole[r] = set1(offsets[std::size_t(r) * steps + g]);
            for (int part = 0; part < Parts; part++) {
                for (int line = 0; line < (Nibbles ? 256 : 512); line += 64) __builtin_prefetch(w[c] + kAhead / S + line);
                u8x64 words[8];
                w[c] = read_group<Nibbles>(w[c], words);
#pragma GCC unroll 16
                for (int r = 0; r < R; r++) {
                    const std::uint8_t* bytes = lines + std::size_t(r) * k_size + (g * Parts + part) * kGroup;
                    for (int j = 0; j < 8; j++) whole[r] = dot_bytes(whole[r], words[j], (i8x64)repeat_word(bytes + 4 * j));
                }
            }
            const f32x16 scale = widen_half(scales[c] + 16 * g);
#pragma GCC unroll 16
            for (int r = 0; r < R; r++)
                acc[r][c] = fma(to_float(whole[r]), scale * line_scales[std::size_t(r) * steps + g], acc[r][c]);
        }
    for (int r = 0; r < R; r++)
        for (int c = 0; c < S; c++) store(out + r * stride + 16 * c, acc[r][c]);
}

// R rows of a block of 64 outputs.
template <bool Nibbles, int R>
static inline void tile_grouped(const Matrix& m, int block, const Operand& x, int row, float* out, std::size_t stride) {
    constexpr int S = R == 1 ? 4 : 1;
    for (int c = 0; c < 4; c += S)
        if (m.step == kGroup) tile_strips<Nibbles, 1, R, S>(m, 4 * block + c, x, row, out + 16 * c, stride);
        else tile_strips<Nibbles, kWideGroup / kGroup, R, S>(m, 4 * block + c, x, row, out + 16 * c, stride);
}

}  // namespace OD_ISA

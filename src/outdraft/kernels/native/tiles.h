// Tiles of products for bf16 and for bytes with a scale an output: up to kTall rows times a block of 64 outputs.
#pragma once
#include "grouped.h"

namespace OD_ISA {

template <int R>
static inline void tile_bf16(const Matrix& m, int block, const Operand& x, int row, float* out, std::size_t stride) {
    const int k_size = m.num_in;
    const bf16* w = reinterpret_cast<const bf16*>(m.data.get()) + std::size_t(block) * kBlock * k_size;
    const std::size_t line = line_bytes(m) / 2;
    const bf16* lines = x.half + row * line;
    f32x16 acc[R][4] = {};
    for (int k = 0; k < k_size; k += 2, w += 2 * kBlock) {
        for (int i = 0; i < 2 * kBlock; i += 32) __builtin_prefetch(w + kAhead / 2 + i);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
            std::uint32_t pair;
            std::memcpy(&pair, lines + r * line + k, 4);
#pragma GCC unroll 4
            for (int c = 0; c < 4; c++) acc[r][c] = dot_pair(acc[r][c], w + 32 * c, pair);
        }
    }
#pragma GCC unroll 16  // sums that are told apart while it runs would lie in memory
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int c = 0; c < 4; c++) store(out + r * stride + 16 * c, acc[r][c]);
}

// Sums of bytes are exact, so for few rows K is read from two places side by side, which memory answers faster.
template <int R>
static inline void tile_int8(const Matrix& m, int block, const Operand& x, int row, float* out, std::size_t stride) {
    constexpr int S = R <= 2 ? 2 : 1;
    const int k_size = m.num_in, part = k_size / S;
    const std::uint8_t* w = m.data.get() + std::size_t(block) * kBlock * k_size;
    const std::size_t line = line_bytes(m);
    const std::uint8_t* lines = x.bytes + row * line;
    i32x16 acc[R][4] = {};
    for (int k = 0; k < part; k += 4, w += 4 * kBlock)
        for (int s = 0; s < S; s++) {
            const std::uint8_t* from = w + std::size_t(s) * part * kBlock;
            for (int i = 0; i < 4 * kBlock; i += 64) __builtin_prefetch(from + kAhead / 2 + i);
            const i8x64 weight[4] = {load_bytes(from), load_bytes(from + 64), load_bytes(from + 128), load_bytes(from + 192)};
#pragma GCC unroll 16
            for (int r = 0; r < R; r++) {
                const u8x64 word = repeat_word(lines + r * line + s * part + k);
#pragma GCC unroll 4
                for (int c = 0; c < 4; c++) acc[r][c] = dot_bytes(acc[r][c], word, weight[c]);
            }
        }
    const float* scales = m.scales.get() + std::size_t(block) * kBlock;
    const std::int32_t* correction = m.correction.get() + std::size_t(block) * kBlock;
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int c = 0; c < 4; c++) {
            const f32x16 whole = to_float(acc[r][c] - load(correction + 16 * c));
            store(out + r * stride + 16 * c, whole * load(scales + 16 * c) * x.scales[row + r]);
        }
}

}  // namespace OD_ISA

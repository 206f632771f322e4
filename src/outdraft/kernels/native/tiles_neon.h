// The tiles of tiles.h and grouped.h for NEON: 32 registers of four numbers each. Written out for the reason that
// tiles_avx2.h gives; the shapes are the same, up to four rows times 16 outputs, or all 64 outputs of a block for one row.
//
//   bf16           both halves of a word become floats, and are multiplied and added one after the other
//   8 and 4 bits   dot products of four signed bytes: one instruction where the processor has it (Arm 8.2 and later, set
//                  `neon_dot`), else products of 16 bits (set `neon`). What is stored as byte + 128 is signed again by
//                  turning its top bit, so the sums need no correction; they are exact, and equal to every other set's
#pragma once
#include <arm_neon.h>

#include "operand.h"

namespace OD_ISA {

#define OD_UNROLL _Pragma("GCC unroll 16")

constexpr int kAhead = 4096;  // bytes that are asked for in time
constexpr int kTallGrouped = 4;

// acc[i] += the dot product of four signed bytes. Of a pair, |sum| <= 2 * 128 * 127 < 2^15.
static inline int32x4_t dot_four(int32x4_t acc, int8x16_t weights, int8x16_t numbers) {
#if defined(__ARM_FEATURE_DOTPROD)
    return vdotq_s32(acc, weights, numbers);
#else
    const int16x8_t low = vmull_s8(vget_low_s8(weights), vget_low_s8(numbers)), high = vmull_high_s8(weights, numbers);
    return vpadalq_s16(acc, vpaddq_s16(low, high));
#endif
}
static inline std::uint32_t word_at(const void* p) {
    std::uint32_t word;
    std::memcpy(&word, p, 4);
    return word;
}
static inline int8x16_t repeat(std::uint32_t word) { return vreinterpretq_s8_u32(vdupq_n_u32(word)); }
static inline float first_half(std::uint32_t pair) { return widen(bf16(pair)); }
static inline float second_half(std::uint32_t pair) { return widen(bf16(pair >> 16)); }

// R rows of C times four outputs, from output 4 * `column` of the block on.
template <int R, int C>
static inline void strip_bf16(const Matrix& m, int block, int column, const Operand& x, int row, float* out, std::size_t stride) {
    const std::size_t line = line_bytes(m) / 2;
    const bf16* lines = x.half + row * line;
    const bf16* w = reinterpret_cast<const bf16*>(m.data.get()) + std::size_t(block) * kBlock * m.num_in + 8 * column;
    const uint32x4_t upper = vdupq_n_u32(0xffff0000u);
    float32x4_t acc[R][C];
    OD_UNROLL for (int r = 0; r < R; r++)
        OD_UNROLL for (int c = 0; c < C; c++) acc[r][c] = vdupq_n_f32(0);
    for (int k = 0; k < m.num_in; k += 2, w += 2 * kBlock) {
        float first[R], second[R];
        OD_UNROLL for (int r = 0; r < R; r++) {
            const std::uint32_t pair = word_at(lines + r * line + k);
            first[r] = first_half(pair), second[r] = second_half(pair);
        }
        OD_UNROLL for (int c = 0; c < C; c++) {
            if (c % 4 == 0) __builtin_prefetch(w + kAhead / 2 + 8 * c);
            const uint32x4_t words = vreinterpretq_u32_u16(vld1q_u16(w + 8 * c));
            const float32x4_t low = vreinterpretq_f32_u32(vshlq_n_u32(words, 16));
            const float32x4_t high = vreinterpretq_f32_u32(vandq_u32(words, upper));
            OD_UNROLL for (int r = 0; r < R; r++) acc[r][c] = vfmaq_n_f32(acc[r][c], low, first[r]);
            OD_UNROLL for (int r = 0; r < R; r++) acc[r][c] = vfmaq_n_f32(acc[r][c], high, second[r]);
        }
    }
    OD_UNROLL for (int r = 0; r < R; r++)
        OD_UNROLL for (int c = 0; c < C; c++) vst1q_f32(out + r * stride + 4 * c, acc[r][c]);
}

template <int R>
static inline void tile_bf16(const Matrix& m, int block, const Operand& x, int row, float* out, std::size_t stride) {
    constexpr int C = R == 1 ? 16 : 4;
    for (int column = 0; column < 16; column += C) strip_bf16<R, C>(m, block, column, x, row, out + 4 * column, stride);
}

template <int R>
static inline void tile_int8(const Matrix& m, int block, const Operand& x, int row, float* out, std::size_t stride) {
    constexpr int C = R == 1 ? 16 : 4;
    const std::size_t line = line_bytes(m);
    const std::uint8_t* lines = x.bytes + row * line;
    for (int column = 0; column < 16; column += C) {
        const std::uint8_t* w = m.data.get() + std::size_t(block) * kBlock * m.num_in + 16 * column;
        int32x4_t whole[R][C];
        OD_UNROLL for (int r = 0; r < R; r++)
            OD_UNROLL for (int c = 0; c < C; c++) whole[r][c] = vdupq_n_s32(0);
        for (int k = 0; k < m.num_in; k += 4, w += 4 * kBlock) {
            int8x16_t own[R];  // activations are stored with + 128
            OD_UNROLL for (int r = 0; r < R; r++) own[r] = repeat(word_at(lines + r * line + k) ^ 0x80808080u);
            OD_UNROLL for (int c = 0; c < C; c++) {
                if (c % 4 == 0) __builtin_prefetch(w + kAhead + 16 * c);
                const int8x16_t weights = vreinterpretq_s8_u8(vld1q_u8(w + 16 * c));
                OD_UNROLL for (int r = 0; r < R; r++) whole[r][c] = dot_four(whole[r][c], weights, own[r]);
            }
        }
        const float* scales = m.scales.get() + std::size_t(block) * kBlock + 4 * column;
        OD_UNROLL for (int r = 0; r < R; r++)
            OD_UNROLL for (int c = 0; c < C; c++) {
                const float32x4_t sum = vmulq_f32(vcvtq_f32_s32(whole[r][c]), vld1q_f32(scales + 4 * c));
                vst1q_f32(out + r * stride + 4 * (column + c), vmulq_n_f32(sum, x.scales[row + r]));
            }
    }
}

// whole += the dot products of 32 inputs: a strip of 16 outputs times R rows.
template <bool Nibbles, int R>
static inline void dot_group(int32x4_t (&whole)[R][4], const std::uint8_t* w, const std::uint8_t* bytes, std::size_t line) {
    const uint8x16_t nibble = vdupq_n_u8(15), top = vdupq_n_u8(128);
    for (int j = 0; j < (Nibbles ? 4 : 8); j++, w += 64) {
        int8x16_t own[R], later[R];
        OD_UNROLL for (int r = 0; r < R; r++) {
            own[r] = repeat(word_at(bytes + r * line + 4 * j));
            if constexpr (Nibbles) later[r] = repeat(word_at(bytes + r * line + 4 * j + 16));
        }
        OD_UNROLL for (int c = 0; c < 4; c++) {
            const uint8x16_t words = vld1q_u8(w + 16 * c);
            if constexpr (Nibbles) {
                const int8x16_t low = vreinterpretq_s8_u8(vandq_u8(words, nibble));
                const int8x16_t high = vreinterpretq_s8_u8(vshrq_n_u8(words, 4));
                OD_UNROLL for (int r = 0; r < R; r++) whole[r][c] = dot_four(whole[r][c], low, own[r]);
                OD_UNROLL for (int r = 0; r < R; r++) whole[r][c] = dot_four(whole[r][c], high, later[r]);
            } else {
                const int8x16_t weights = vreinterpretq_s8_u8(veorq_u8(words, top));
                OD_UNROLL for (int r = 0; r < R; r++) whole[r][c] = dot_four(whole[r][c], weights, own[r]);
            }
        }
    }
}

// R rows of a strip of 16 outputs; `groups` times 32 inputs make a step.
template <bool Nibbles, int R>
static inline void tile_strip(const Matrix& m, int strip, int groups, const Operand& x, int row, float* out, std::size_t stride) {
    const int steps = m.num_in / (groups * kGroup);
    const std::size_t line = line_bytes(m), bytes = Nibbles ? 256 : 512;
    const std::uint8_t *w = m.strip(strip), *lines = x.bytes + row * line;
    const std::uint16_t* halves = m.strip_scales(strip);
    const float* line_scales = x.scales + std::size_t(row) * steps;
    const std::int32_t* offsets = x.offsets + std::size_t(row) * steps;
    float32x4_t acc[R][4];
    OD_UNROLL for (int r = 0; r < R; r++)
        OD_UNROLL for (int c = 0; c < 4; c++) acc[r][c] = vdupq_n_f32(0);
    for (int g = 0; g < steps; g++) {
        int32x4_t whole[R][4];  // bytes of weights are signed here, so only the nibbles' + 8 is to be taken off
        OD_UNROLL for (int r = 0; r < R; r++)
            OD_UNROLL for (int c = 0; c < 4; c++)
                whole[r][c] = vdupq_n_s32(Nibbles ? offsets[std::size_t(r) * steps + g] : 0);
        for (int part = 0; part < groups; part++, w += bytes) {
            for (std::size_t i = 0; i < bytes; i += 64) __builtin_prefetch(w + kAhead + i);
            dot_group<Nibbles>(whole, w, lines + (g * groups + part) * kGroup, line);
        }
        OD_UNROLL for (int c = 0; c < 4; c++) {
            const float32x4_t scale = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(halves + 16 * g + 4 * c)));
            OD_UNROLL for (int r = 0; r < R; r++) {
                const float32x4_t both = vmulq_n_f32(scale, line_scales[std::size_t(r) * steps + g]);
                acc[r][c] = vfmaq_f32(acc[r][c], vcvtq_f32_s32(whole[r][c]), both);
            }
        }
    }
    OD_UNROLL for (int r = 0; r < R; r++)
        OD_UNROLL for (int c = 0; c < 4; c++) vst1q_f32(out + r * stride + 4 * c, acc[r][c]);
}

template <bool Nibbles, int R>
static inline void tile_grouped(const Matrix& m, int block, const Operand& x, int row, float* out, std::size_t stride) {
    for (int c = 0; c < 4; c++)
        tile_strip<Nibbles, R>(m, 4 * block + c, m.step / kGroup, x, row, out + 16 * c, stride);
}

#undef OD_UNROLL

}  // namespace OD_ISA

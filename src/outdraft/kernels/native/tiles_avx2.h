// The tiles of tiles.h and grouped.h for AVX2, whose registers are half as long and half as many, and which multiplies
// bytes in pairs only. Written out, because GCC keeps vectors of 64 bytes in memory there: that was fifty times slower.
//
// A tile is up to four rows times 16 outputs, two registers a row; for one row it is all 64 outputs of a block.
//   bf16           both halves of a word become floats, and are multiplied and added one after the other; up to five rows,
//                  32 outputs of two rows
//   8 bits         both halves of a word's pairs become 16-bit numbers: exact sums of products, two at a time
//   4 bits         bytes times bytes; a group's sums stay below 2^15
#pragma once
#include "operand.h"

namespace OD_ISA {

#define OD_UNROLL _Pragma("GCC unroll 16")

constexpr int kAhead = 8192;  // bytes that are asked for in time
constexpr int kTallGrouped = 4;

static inline __m256i read_ymm(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
static inline __m256i repeat(const void* p) {
    std::int32_t word;
    std::memcpy(&word, p, 4);
    return _mm256_set1_epi32(word);
}

// sums += weights * number, here and in this order: GCC would read numbers ahead, and have no registers left for the sums.
template <int C>
static inline void add_products(__m256 (&sums)[C], const __m256 (&weights)[C], const float* number) {
    __m256 same;
    asm volatile("vbroadcastss %1, %0" : "=x"(same) : "m"(*number));
    OD_UNROLL for (int c = 0; c < C; c++) asm volatile("vfmadd231ps %2, %1, %0" : "+x"(sums[c]) : "x"(weights[c]), "x"(same));
}

// R rows of C times 8 outputs, from output 8 * `column` of the block on; inputs [from, to), behind what stands in `out`.
template <int R, int C>
static inline void strip_bf16(const Matrix& m, int block, int column, int from, int to, const Operand& x, int row, float* out,
                              std::size_t stride) {
    const std::size_t line = line_bytes(m) / sizeof(Half);
    const float* lines = x.half + row * line;
    const bf16* w = reinterpret_cast<const bf16*>(m.data.get()) + (std::size_t(block) * m.num_in + from) * kBlock + 16 * column;
    const __m256i upper = _mm256_set1_epi32(int(0xffff0000u));
    __m256 acc[R][C];
    OD_UNROLL for (int r = 0; r < R; r++)
        OD_UNROLL for (int c = 0; c < C; c++) acc[r][c] = from ? _mm256_loadu_ps(out + r * stride + 8 * c) : _mm256_setzero_ps();
    for (int k = from; k < to; k += 2, w += 2 * kBlock) {
        if constexpr (R == 1) {  // words are read once: registers do not hold eight of each
            const __m256 first = _mm256_broadcast_ss(lines + k), second = _mm256_broadcast_ss(lines + k + 1);
            OD_UNROLL for (int c = 0; c < C; c++) {
                const __m256i words = read_ymm(w + 16 * c);
                if (c % 2 == 0) __builtin_prefetch(w + kAhead / 2 + 16 * c);
                acc[0][c] = _mm256_fmadd_ps((__m256)_mm256_slli_epi32(words, 16), first, acc[0][c]);
                acc[0][c] = _mm256_fmadd_ps((__m256)_mm256_and_si256(words, upper), second, acc[0][c]);
            }
            continue;
        }
        OD_UNROLL for (int odd = 0; odd < 2; odd++) {
            __m256 weights[C];
            OD_UNROLL for (int c = 0; c < C; c++) {
                const __m256i words = read_ymm(w + 16 * c);
                weights[c] = (__m256)(odd ? _mm256_and_si256(words, upper) : _mm256_slli_epi32(words, 16));
                if (!odd && c % 2 == 0) __builtin_prefetch(w + kAhead / 2 + 16 * c);
            }
            OD_UNROLL for (int r = 0; r < R; r++) add_products(acc[r], weights, lines + r * line + k + odd);
            asm("" : "+r"(w));  // words are read twice: kept, they would drive sums out of the registers
        }
    }
    OD_UNROLL for (int r = 0; r < R; r++)
        OD_UNROLL for (int c = 0; c < C; c++) _mm256_storeu_ps(out + r * stride + 8 * c, acc[r][c]);
}

template <int R>
static inline void tile_bf16(const Matrix& m, int block, const Operand& x, int row, float* out, std::size_t stride) {
    constexpr int C = R == 1 ? 8 : R == 2 ? 4 : 2, depth = R == 1 ? 1 << 30 : 768;  // inputs whose rows the first cache holds
    for (int from = 0; from < m.num_in; from += depth) {
        const int to = m.num_in - from < depth ? m.num_in : from + depth;
        for (int column = 0; column < 8; column += C)
            strip_bf16<R, C>(m, block, column, from, to, x, row, out + 8 * column, stride);
    }
}

// Words of four bytes as 16-bit numbers, bytes 0 and 2, then 1 and 3.
template <bool Signed>
static inline void widen_pairs(__m256i words, __m256i& even, __m256i& odd) {
    if (Signed) even = _mm256_srai_epi16(_mm256_slli_epi16(words, 8), 8), odd = _mm256_srai_epi16(words, 8);
    else even = _mm256_and_si256(words, _mm256_set1_epi16(255)), odd = _mm256_srli_epi16(words, 8);
}

// whole += the dot products of four inputs: words of weights, C registers `apart` bytes behind each other, and of R rows.
template <bool SignedWeights, int R, int C>
static inline void dot_four(__m256i (&whole)[R][C], const std::uint8_t* w, const std::uint8_t* bytes, std::size_t line) {
    __m256i even[C], odd[C];
    OD_UNROLL for (int c = 0; c < C; c++) widen_pairs<SignedWeights>(read_ymm(w + 32 * c), even[c], odd[c]);
    OD_UNROLL for (int r = 0; r < R; r++) {
        __m256i first, second;
        widen_pairs<!SignedWeights>(repeat(bytes + r * line), first, second);
        OD_UNROLL for (int c = 0; c < C; c++)
            whole[r][c] = _mm256_add_epi32(whole[r][c], _mm256_add_epi32(_mm256_madd_epi16(even[c], first),
                                                                         _mm256_madd_epi16(odd[c], second)));
    }
}

template <int R>
static inline void tile_int8(const Matrix& m, int block, const Operand& x, int row, float* out, std::size_t stride) {
    constexpr int C = R == 1 ? 8 : 2;
    const std::size_t line = line_bytes(m);
    for (int column = 0; column < 8; column += C) {
        const std::uint8_t* w = m.data.get() + std::size_t(block) * kBlock * m.num_in + 32 * column;
        const std::uint8_t* lines = x.bytes + row * line;
        __m256i whole[R][C];
        OD_UNROLL for (int r = 0; r < R; r++)
            OD_UNROLL for (int c = 0; c < C; c++) whole[r][c] = _mm256_setzero_si256();
        for (int k = 0; k < m.num_in; k += 4, w += 4 * kBlock) {
            OD_UNROLL for (int c = 0; c < C; c += 2) __builtin_prefetch(w + kAhead / 2 + 32 * c);
            dot_four<true>(whole, w, lines + k, line);
        }
        const std::size_t at = std::size_t(block) * kBlock + 8 * column;
        OD_UNROLL for (int c = 0; c < C; c++) {
            const __m256 scale = _mm256_loadu_ps(m.scales.get() + at + 8 * c);
            const __m256i correction = read_ymm(m.correction.get() + at + 8 * c);
            OD_UNROLL for (int r = 0; r < R; r++) {
                const __m256 sum = _mm256_cvtepi32_ps(_mm256_sub_epi32(whole[r][c], correction));
                _mm256_storeu_ps(out + r * stride + 8 * column + 8 * c, sum * scale * _mm256_set1_ps(x.scales[row + r]));
            }
        }
    }
}

// A step's sums [R][C] of a strip of 16 outputs, C of its two halves from `half` on; adds to them.
template <bool Nibbles, int R, int C>
static inline void dot_group(__m256i (&whole)[R][C], const std::uint8_t* w, const std::uint8_t* bytes, std::size_t line) {
    const __m256i ones = _mm256_set1_epi16(1);
    if constexpr (!Nibbles) {  // magnitudes times what has their signs: of a pair, |sum| <= 2 * 128 * 127 < 2^15
        OD_UNROLL for (int j = 0; j < 8; j++)
            OD_UNROLL for (int c = 0; c < C; c++) {
                const __m256i codes = _mm256_xor_si256(read_ymm(w + 64 * j + 32 * c), _mm256_set1_epi8(char(0x80)));
                const __m256i sizes = _mm256_abs_epi8(codes);
                OD_UNROLL for (int r = 0; r < R; r++) {
                    const __m256i own = _mm256_sign_epi8(repeat(bytes + r * line + 4 * j), codes);
                    whole[r][c] = _mm256_add_epi32(whole[r][c], _mm256_madd_epi16(_mm256_maddubs_epi16(sizes, own), ones));
                }
            }
        return;
    }
    const __m256i nibble = _mm256_set1_epi8(15);
    __m256i pairs[R][C];  // |sum| <= 8 * 2 * 15 * 127 < 2^15
    OD_UNROLL for (int r = 0; r < R; r++)
        OD_UNROLL for (int c = 0; c < C; c++) pairs[r][c] = _mm256_setzero_si256();
    OD_UNROLL for (int j = 0; j < 4; j++)
        OD_UNROLL for (int c = 0; c < C; c++) {
            const __m256i words = read_ymm(w + 64 * j + 32 * c);
            const __m256i low = _mm256_and_si256(words, nibble), high = _mm256_and_si256(_mm256_srli_epi16(words, 4), nibble);
            OD_UNROLL for (int r = 0; r < R; r++) {
                const std::uint8_t* own = bytes + r * line + 4 * j;
                pairs[r][c] = _mm256_add_epi16(pairs[r][c], _mm256_add_epi16(_mm256_maddubs_epi16(low, repeat(own)),
                                                                             _mm256_maddubs_epi16(high, repeat(own + 16))));
            }
        }
    OD_UNROLL for (int r = 0; r < R; r++)
        OD_UNROLL for (int c = 0; c < C; c++)
            whole[r][c] = _mm256_add_epi32(whole[r][c], _mm256_madd_epi16(pairs[r][c], ones));
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
    __m256 acc[R][2];
    OD_UNROLL for (int r = 0; r < R; r++) acc[r][0] = acc[r][1] = _mm256_setzero_ps();
    for (int g = 0; g < steps; g++) {
        __m256i whole[R][2];
        OD_UNROLL for (int r = 0; r < R; r++)
            whole[r][0] = whole[r][1] = _mm256_set1_epi32(Nibbles ? offsets[std::size_t(r) * steps + g] : 0);
        for (int part = 0; part < groups; part++, w += bytes) {
            for (std::size_t i = 0; i < bytes; i += 64) __builtin_prefetch(w + kAhead + i);
            dot_group<Nibbles>(whole, w, lines + (g * groups + part) * kGroup, line);
        }
        OD_UNROLL for (int c = 0; c < 2; c++) {
            __m128i half;
            std::memcpy(&half, halves + 16 * g + 8 * c, 16);
            const __m256 scale = _mm256_cvtph_ps(half);
            OD_UNROLL for (int r = 0; r < R; r++) {
                const __m256 both = scale * _mm256_set1_ps(line_scales[std::size_t(r) * steps + g]);
                acc[r][c] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(whole[r][c]), both, acc[r][c]);
            }
        }
    }
    OD_UNROLL for (int r = 0; r < R; r++)
        OD_UNROLL for (int c = 0; c < 2; c++) _mm256_storeu_ps(out + r * stride + 8 * c, acc[r][c]);
}

template <bool Nibbles, int R>
static inline void tile_grouped(const Matrix& m, int block, const Operand& x, int row, float* out, std::size_t stride) {
    for (int c = 0; c < 4; c++)
        tile_strip<Nibbles, R>(m, 4 * block + c, m.step / kGroup, x, row, out + 16 * c, stride);
}

#undef OD_UNROLL

}  // namespace OD_ISA

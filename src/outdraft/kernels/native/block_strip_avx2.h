// As block_strip.h for AVX2, which multiplies bytes in pairs, to sums of 16 bits: so many pairs are added there as stay
// below 2^15. Codes that may be negative are multiplied by their magnitudes, with their signs at the other factor.
#pragma once
#include <type_traits>

#include "tiles_avx2.h"

namespace OD_ISA {

using outdraft::Block;
using outdraft::Format;
using outdraft::Scales;

#define OD_UNROLL _Pragma("GCC unroll 16")

static inline __m256 half_floats(const std::uint8_t* p) {
    __m128i halves;
    std::memcpy(&halves, p, 16);
    return _mm256_cvtph_ps(halves);
}
template <bool Signed>
static inline __m256i eight_bytes(const std::uint8_t* p) {
    std::int64_t bytes;
    std::memcpy(&bytes, p, 8);
    const __m128i v = _mm_cvtsi64_si128(bytes);
    return Signed ? _mm256_cvtepi8_epi32(v) : _mm256_cvtepu8_epi32(v);
}

// Scales and leasts of sub-block `i` for eight outputs; `w` is at theirs.
template <Block Type>
static inline void open_scale(const std::uint8_t* w, int i, __m256 d, __m256 m, __m256& scale, __m256& least) {
    constexpr Format format = outdraft::format_of(Type);
    if constexpr (format.scales == Scales::none) {
        scale = d, least = m;
    } else if constexpr (format.scales == Scales::bytes) {
        scale = d * _mm256_cvtepi32_ps(eight_bytes<true>(w + 16 * i));
        if (format.leasts) least = m * _mm256_cvtepi32_ps(eight_bytes<true>(w + 16 * (format.subs() + i)));
    } else {
        const __m256i bytes = eight_bytes<false>(w + 16 * i);
        if constexpr (format.scales == Scales::nibbles) {
            scale = d * _mm256_cvtepi32_ps(_mm256_and_si256(bytes, _mm256_set1_epi32(15)));
            least = m * _mm256_cvtepi32_ps(_mm256_srli_epi32(bytes, 4));
        } else if constexpr (format.scales == Scales::powers) {
            const __m256i low = _mm256_slli_epi32(_mm256_add_epi32(bytes, _mm256_set1_epi32(1)), 21);
            const __m256i high = _mm256_slli_epi32(_mm256_sub_epi32(bytes, _mm256_set1_epi32(1)), 23);
            scale = (__m256)_mm256_blendv_epi8(low, high, _mm256_cmpgt_epi32(bytes, _mm256_set1_epi32(1)));
        } else {
            scale = _mm256_cvtph_ps(_mm_slli_epi16(_mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i*)(w + 16 * i))), 7)) * 128.0f;
        }
    }
}

// Bits of each byte moved up by `by` (down where it is negative), and masked.
template <int by>
static inline __m256i moved(__m256i v, int mask) {
    if constexpr (by > 0) v = _mm256_slli_epi16(v, by);
    if constexpr (by < 0) v = _mm256_srli_epi16(v, -by);
    return _mm256_and_si256(v, _mm256_set1_epi8(char(mask)));
}

// The codes of word `j` of a group, of eight outputs.
template <Block Type, int j>
static inline __m256i open_word(const std::uint8_t* w, __m256i table) {
    constexpr Format format = outdraft::format_of(Type);
    constexpr int fours = format.bits / 4, rest = format.bits % 4, low = fours * 4;
    if constexpr (format.bits == 8) return _mm256_xor_si256(read_ymm(w + 64 * j), _mm256_set1_epi8(char(0x80)));
    __m256i codes = _mm256_setzero_si256();
    if constexpr (fours > 0) codes = moved<-(j / 4 * 4)>(read_ymm(w + 64 * (j % 4)), 15);
    if constexpr (rest >= 2) {
        const __m256i two = moved<low - j / 2 * 2>(read_ymm(w + 256 * fours + 64 * (j % 2)), 3 << low);
        codes = fours ? _mm256_or_si256(codes, two) : two;
    }
    if constexpr (rest % 2)
        codes = _mm256_or_si256(codes, moved<format.bits - 1 - j>(read_ymm(w + 256 * fours + 128 * (rest / 2)), 1 << (format.bits - 1)));
    if constexpr (format.table) codes = _mm256_shuffle_epi8(table, codes);
    return codes;
}

template <Block Type>
struct Pairs {
    static constexpr Format format = outdraft::format_of(Type);
    static constexpr bool is_signed = format.zero == 128;  // as all eight bits are used
    static constexpr int together = is_signed ? 1 : format.bits == 6 ? 2 : format.bits == 4 && !format.table ? 8 : 4;
};

// whole[r][c] += sums of codes times numbers over `count` words from word j on, of R rows and two times eight outputs.
template <Block Type, int j, int count, int R>
static inline void add_words(__m256i (&whole)[R][2], const std::uint8_t* w, const std::uint8_t* numbers, std::size_t line, __m256i table) {
    constexpr int wanted = Pairs<Type>::together, together = wanted < count ? wanted : count;
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i pairs[R][2];
    OD_UNROLL for (int r = 0; r < R; r++) pairs[r][0] = pairs[r][1] = _mm256_setzero_si256();
    const auto add_word = [&](auto word) {
        constexpr int at = j + decltype(word)::value;
        OD_UNROLL for (int c = 0; c < 2; c++) {
            const __m256i codes = open_word<Type, at>(w + 32 * c, table);
            const __m256i sizes = Pairs<Type>::is_signed ? _mm256_abs_epi8(codes) : codes;
            OD_UNROLL for (int r = 0; r < R; r++) {
                const __m256i own = repeat(numbers + r * line + 4 * at);
                const __m256i products = _mm256_maddubs_epi16(sizes, Pairs<Type>::is_signed ? _mm256_sign_epi8(own, codes) : own);
                pairs[r][c] = word == 0 ? products : _mm256_add_epi16(pairs[r][c], products);
            }
        }
    };
    add_word(std::integral_constant<int, 0>());
    if constexpr (together > 1) add_word(std::integral_constant<int, 1>());
    if constexpr (together > 2) add_word(std::integral_constant<int, 2>()), add_word(std::integral_constant<int, 3>());
    if constexpr (together > 4) {
        add_word(std::integral_constant<int, 4>()), add_word(std::integral_constant<int, 5>());
        add_word(std::integral_constant<int, 6>()), add_word(std::integral_constant<int, 7>());
    }
    OD_UNROLL for (int r = 0; r < R; r++)
        OD_UNROLL for (int c = 0; c < 2; c++) whole[r][c] = _mm256_add_epi32(whole[r][c], _mm256_madd_epi16(pairs[r][c], ones));
    if constexpr (count > together) add_words<Type, j + together, count - together>(whole, w, numbers, line, table);
}

// R rows of a strip of 16 outputs.
template <Block Type, int R>
static inline void block_strip(const std::uint8_t* w, int k_size, const Operand& x, int row, std::size_t line, float* out, std::size_t stride) {
    constexpr Format format = outdraft::format_of(Type);
    constexpr int subs = format.subs(), groups = format.span / kGroup;
    const int all = k_size / kGroup;
    const std::uint8_t* lines = x.bytes + row * line;
    const float *scales = x.scales + std::size_t(row) * all, *sums = x.sums + std::size_t(row) * all;
    const std::int32_t* offsets = x.offsets + std::size_t(row) * 2 * all;
    __m256i table = _mm256_setzero_si256();
    if constexpr (format.table) {
        __m128i lane;
        std::memcpy(&lane, outdraft::table_of(Type), 16);
        table = _mm256_broadcastsi128_si256(lane);
        if (Pairs<Type>::is_signed) table = _mm256_xor_si256(table, _mm256_set1_epi8(char(0x80)));
    }
    __m256 acc[R][2], d[2] = {}, m[2] = {};
    OD_UNROLL for (int r = 0; r < R; r++) acc[r][0] = acc[r][1] = _mm256_setzero_ps();
    for (int first = 0; first < all; first += groups) {
        OD_UNROLL for (int c = 0; c < 2; c++) {
            if (format.heads() > 0) d[c] = half_floats(w + 16 * c);
            if (format.heads() > 1) m[c] = half_floats(w + 32 + 16 * c);
        }
        w += 32 * format.heads();
#pragma GCC unroll 1
        for (int g = first; g < first + groups; g++, w += format.group_bytes()) {
            for (int i = 0; i < format.group_bytes(); i += 64) __builtin_prefetch(w + (R == 1 ? kAhead / 4 : kAhead) + i);
            const std::uint8_t *codes = w + format.scale_bytes(), *numbers = lines + g * kGroup;
            const auto add_sub = [&](auto sub) {
                constexpr int i = decltype(sub)::value;
                __m256i whole[R][2];
                OD_UNROLL for (int r = 0; r < R; r++) {
                    const std::int32_t* taken = offsets + 2 * (std::size_t(r) * all + g);
                    const std::int32_t begin = subs == 1 ? taken[0] + taken[1] : taken[i];
                    whole[r][0] = whole[r][1] = format.zero && !Pairs<Type>::is_signed ? _mm256_set1_epi32(begin * format.zero) : _mm256_setzero_si256();
                }
                add_words<Type, 8 / subs * i, 8 / subs>(whole, codes, numbers, line, table);
                OD_UNROLL for (int c = 0; c < 2; c++) {
                    __m256 scale, least = _mm256_setzero_ps();
                    open_scale<Type>(w + 8 * c, i, d[c], m[c], scale, least);
                    OD_UNROLL for (int r = 0; r < R; r++) {
                        const std::size_t at = std::size_t(r) * all + g;
                        acc[r][c] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(whole[r][c]), scale * _mm256_set1_ps(scales[at]), acc[r][c]);
                        if (!format.leasts) continue;
                        const float inputs = subs == 1 ? sums[at] : scales[at] * float(-offsets[2 * at + i]);
                        acc[r][c] = _mm256_fmadd_ps(least, _mm256_set1_ps(inputs), acc[r][c]);
                    }
                }
            };
            add_sub(std::integral_constant<int, 0>());
            if constexpr (subs > 1) add_sub(std::integral_constant<int, 1>());
        }
    }
    OD_UNROLL for (int r = 0; r < R; r++)
        OD_UNROLL for (int c = 0; c < 2; c++) _mm256_storeu_ps(out + r * stride + 8 * c, acc[r][c]);
}

#undef OD_UNROLL

}  // namespace OD_ISA

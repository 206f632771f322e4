// Strips of block formats (blocks.h) in vectors of sixteen lanes.
//
// A group of 32 inputs is one or two exact integer sums; each is scaled and added to the row's float sum, group after
// group, then the least value times the sum of the inputs. Codes and scales are taken apart once for all rows of a tile.
#pragma once
#include "operand.h"

namespace OD_ISA {

using outdraft::Block;
using outdraft::Format;
using outdraft::Scales;

static inline u8x64 load_line(const std::uint8_t* p) { return (u8x64)load_bytes(p); }
static inline i32x16 widen_bytes(const std::uint8_t* p) {
    u8x16 v;
    std::memcpy(&v, p, 16);
#if defined(__AVX512F__)
    return (i32x16)_mm512_cvtepu8_epi32((__m128i)v);
#else
    return __builtin_convertvector(v, i32x16);
#endif
}
// Bits `shift` and up of each byte, as many as the mask has.
static inline u8x64 bits_of(u8x64 bytes, int shift, int mask) {
    return (u8x64)(((u32x16)bytes >> shift) & std::uint32_t(mask * 0x01010101));
}
static inline u8x64 look_up(const std::uint8_t* table, u8x64 places) {
#if defined(__AVX512BW__)
    __m128i lane;
    std::memcpy(&lane, table, 16);
    return (u8x64)_mm512_shuffle_epi8(_mm512_broadcast_i32x4(lane), (__m512i)places);
#else
    u8x64 out;
    for (int i = 0; i < 64; i++) out[i] = table[places[i]];
    return out;
#endif
}

template <Block Type>
class GroupCodes {
    static constexpr outdraft::Format format = outdraft::format_of(Type);

public:
    explicit GroupCodes(const std::uint8_t* w) {
        constexpr int fours = format.bits / 4, rest = format.bits % 4;  // whole halves of a byte; bits above or without them
        if constexpr (format.bits == 8) {
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++) words_[i] = load_line(w + 64 * i);
            return;
        }
        if constexpr (fours > 0) {
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                const u8x64 both = load_line(w + 64 * i);
                words_[i] = bits_of(both, 0, 15), words_[i + 4] = bits_of(both, 4, 15);
            }
            w += 256;
        }
        if constexpr (rest >= 2) {
#pragma GCC unroll 2
            for (int i = 0; i < 2; i++) {
                const u8x64 four = load_line(w + 64 * i);
#pragma GCC unroll 4
                for (int s = 0; s < 4; s++) {
                    const u8x64 two = bits_of(four, 2 * s, 3);
                    words_[2 * s + i] = fours ? (u8x64)((u32x16)words_[2 * s + i] | (u32x16)two << 4) : two;
                }
            }
            w += 128;
        }
        if constexpr (rest % 2) {
            const u8x64 eight = load_line(w);
#pragma GCC unroll 8
            for (int s = 0; s < 8; s++) words_[s] = (u8x64)((u32x16)words_[s] | (u32x16)bits_of(eight, s, 1) << (format.bits - 1));
        }
        if constexpr (format.table) {
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++) words_[i] = look_up(outdraft::table_of(Type), words_[i]);
        }
    }

    // Sums of (code - zero) times number over sub-block `i`, of 16 outputs. `taken`: minus the sum of the numbers.
    i32x16 sum(const std::uint8_t* numbers, int i, std::int32_t taken) const {
        i32x16 whole = format.zero ? set1(taken * format.zero) : i32x16{};
        constexpr int count = 8 / format.subs();
#pragma GCC unroll 8
        for (int j = 0; j < count; j++)
            whole = dot_bytes(whole, words_[count * i + j], (i8x64)repeat_word(numbers + 4 * (count * i + j)));
        return whole;
    }

private:
    u8x64 words_[8];
};

struct GroupScales {
    f32x16 scale[2], least[2];  // of the sub-blocks
};

// The scales of 32 inputs, from `w` on; `d` and `m` are the span's.
template <Block Type>
static inline void open_scales(const std::uint8_t* w, f32x16 d, f32x16 m, GroupScales& to) {
    constexpr Format format = outdraft::format_of(Type);
    constexpr int subs = format.subs();
    for (int i = 0; i < subs; i++) {
        if constexpr (format.scales == Scales::none) {
            to.scale[i] = d, to.least[i] = m;
        } else if constexpr (format.scales == Scales::bytes) {
            to.scale[i] = d * widen(reinterpret_cast<const std::int8_t*>(w + 16 * i));
            if (format.leasts) to.least[i] = m * widen(reinterpret_cast<const std::int8_t*>(w + 16 * (subs + i)));
        } else {
            const i32x16 bytes = widen_bytes(w + 16 * i);
            if constexpr (format.scales == Scales::nibbles) {
                to.scale[i] = d * to_float(bytes & 15), to.least[i] = m * to_float(bytes >> 4);
            } else if constexpr (format.scales == Scales::powers) {
                to.scale[i] = (f32x16)(bytes < 2 ? (bytes + 1) << 21 : (bytes - 1) << 23);
            } else {
                const u16x16 halves = __builtin_convertvector(bytes << 7, u16x16);
                std::uint16_t line[16];
                std::memcpy(line, &halves, 32);
                to.scale[i] = widen_half(line) * 0x1p7f;
            }
        }
    }
}

// R rows of a strip of 16 outputs.
template <Block Type, int R>
static inline void block_strip(const std::uint8_t* w, int k_size, const Operand& x, int row, std::size_t line, float* out,
                                    std::size_t stride) {
    constexpr Format format = outdraft::format_of(Type);
    constexpr int subs = format.subs(), groups = format.span / kGroup;
    const int all = k_size / kGroup;  // groups of a row
    const std::uint8_t* bytes = x.bytes + row * line;
    const float *scales = x.scales + std::size_t(row) * all, *sums = x.sums + std::size_t(row) * all;
    const std::int32_t* offsets = x.offsets + std::size_t(row) * 2 * all;
    f32x16 acc[R] = {};
    for (int first = 0; first < all; first += groups) {
        f32x16 d = {}, m = {};
        if (format.heads() > 0) d = widen_half(reinterpret_cast<const std::uint16_t*>(w));
        if (format.heads() > 1) m = widen_half(reinterpret_cast<const std::uint16_t*>(w + 32));
        w += 32 * format.heads();
#pragma GCC unroll 1
        for (int g = first; g < first + groups; g++, w += format.group_bytes()) {
            for (int i = 0; i < format.group_bytes(); i += 64) __builtin_prefetch(w + kAhead + i);
            GroupScales own;
            open_scales<Type>(w, d, m, own);
            GroupCodes<Type> codes(w + format.scale_bytes());
#pragma GCC unroll 16
            for (int r = 0; r < R; r++) {
                const std::size_t at = std::size_t(r) * all + g;
                const std::int32_t* taken = offsets + 2 * at;
                const std::uint8_t* numbers = bytes + r * line + g * kGroup;
#pragma GCC unroll 2
                for (int i = 0; i < subs; i++) {
                    const i32x16 whole = codes.sum(numbers, i, subs == 1 ? taken[0] + taken[1] : taken[i]);
                    acc[r] = fma(to_float(whole), own.scale[i] * scales[at], acc[r]);
                    if (format.leasts) {
                        const float inputs = subs == 1 ? sums[at] : scales[at] * float(-taken[i]);
                        acc[r] = fma(own.least[i], set1(inputs), acc[r]);
                    }
                }
            }
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) store(out + r * stride, acc[r]);
}

}  // namespace OD_ISA

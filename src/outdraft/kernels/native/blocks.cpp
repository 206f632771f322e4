// A file's blocks taken apart, and laid out as the products want them.
#include "blocks.h"

#include <cmath>
#include <cstring>
#include <stdexcept>

namespace outdraft {

namespace {

// A block of a file: codes before `zero` is taken off; scales and leasts of the sub-blocks.
struct Open {
    std::uint8_t codes[256];
    std::uint8_t scales[16], leasts[16];
    std::uint16_t d, m;
};

std::uint16_t half_at(const std::uint8_t* from) { return std::uint16_t(from[0] | from[1] << 8); }

// 16 inputs in the low halves of as many bytes, `count` in the high ones.
void open_nibbles(const std::uint8_t* from, int count, std::uint8_t* codes) {
    for (int i = 0; i < count; i++) codes[i] = from[i] & 15, codes[count + i] = from[i] >> 4;
}

// The 12 bytes of q4_k and q5_k: eight scales and eight leasts of 6 bits.
void open_sixes(const std::uint8_t* from, Open& to) {
    for (int i = 0; i < 4; i++) {
        to.scales[i] = from[i] & 63, to.leasts[i] = from[i + 4] & 63;
        to.scales[i + 4] = std::uint8_t((from[i + 8] & 15) | (from[i] >> 6) << 4);
        to.leasts[i + 4] = std::uint8_t(from[i + 8] >> 4 | (from[i + 4] >> 6) << 4);
    }
}

void open_small(Block type, const std::uint8_t* from, Open& to) {  // spans of 32: one sub-block
    if (type == Block::mxfp4) {
        to.scales[0] = from[0];
        return open_nibbles(from + 1, 16, to.codes);
    }
    to.d = half_at(from), from += 2;
    if (format_of(type).leasts) to.m = half_at(from), from += 2;
    if (type == Block::q8_0) {
        for (int i = 0; i < 32; i++) to.codes[i] = from[i] ^ 0x80;
        return;
    }
    const bool fives = format_of(type).bits == 5;
    open_nibbles(from + (fives ? 4 : 0), 16, to.codes);
    if (fives)
        for (int i = 0; i < 32; i++) to.codes[i] |= std::uint8_t((from[i / 8] >> i % 8 & 1) << 4);
}

void open_q2_k(const std::uint8_t* from, Open& to) {
    for (int i = 0; i < 16; i++) to.scales[i] = from[i] & 15, to.leasts[i] = from[i] >> 4;
    for (int i = 0; i < 256; i++) to.codes[i] = from[16 + i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
    to.d = half_at(from + 80), to.m = half_at(from + 82) ^ 0x8000;
}

void open_q3_k(const std::uint8_t* from, Open& to) {
    const std::uint8_t *high = from, *low = from + 32, *scales = from + 96;
    for (int i = 0; i < 256; i++)
        to.codes[i] = std::uint8_t((low[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3) | (high[i % 32] >> i / 32 & 1) << 2);
    for (int i = 0; i < 16; i++) {
        const int bits = (i < 8 ? scales[i] & 15 : scales[i - 8] >> 4) | (scales[8 + i % 4] >> i / 4 * 2 & 3) << 4;
        to.scales[i] = std::uint8_t(bits - 32);
    }
    to.d = half_at(from + 108);
}

void open_q4_k(const std::uint8_t* from, Open& to, bool fives) {
    to.d = half_at(from), to.m = half_at(from + 2) ^ 0x8000;
    open_sixes(from + 4, to);
    const std::uint8_t *high = from + 16, *low = high + (fives ? 32 : 0);
    for (int part = 0; part < 4; part++) open_nibbles(low + 32 * part, 32, to.codes + 64 * part);
    if (fives)
        for (int i = 0; i < 256; i++) to.codes[i] |= std::uint8_t((high[i % 32] >> i / 32 & 1) << 4);
}

void open_q6_k(const std::uint8_t* from, Open& to) {
    const std::uint8_t *low = from, *high = from + 128;
    for (int i = 0; i < 256; i++) {
        const int half = i / 128, at = i % 128;
        const int four = low[64 * half + at % 64] >> at / 64 * 4 & 15;
        to.codes[i] = std::uint8_t(four | (high[32 * half + at % 32] >> at / 32 * 2 & 3) << 4);
    }
    std::memcpy(to.scales, from + 192, 16);
    to.d = half_at(from + 208);
}

void open_iq4_xs(const std::uint8_t* from, Open& to) {
    to.d = half_at(from);
    const int high = half_at(from + 2);
    for (int i = 0; i < 8; i++) {
        to.scales[i] = std::uint8_t(((from[4 + i / 2] >> i % 2 * 4 & 15) | (high >> 2 * i & 3) << 4) - 32);
        open_nibbles(from + 8 + 16 * i, 16, to.codes + 32 * i);
    }
}

void open_nvfp4(const std::uint8_t* from, Open& to) {
    for (int i = 0; i < 4; i++) {
        to.scales[i] = from[i] == 0x7f ? 0 : from[i] & 0x7f;  // 0x7f is no number; the sign is not read
        open_nibbles(from + 4 + 8 * i, 8, to.codes + 16 * i);
    }
}

void open_block(Block type, const std::uint8_t* from, Open& to) {
    switch (type) {
        case Block::q2_k: return open_q2_k(from, to);
        case Block::q3_k: return open_q3_k(from, to);
        case Block::q4_k: return open_q4_k(from, to, false);
        case Block::q5_k: return open_q4_k(from, to, true);
        case Block::q6_k: return open_q6_k(from, to);
        case Block::iq4_xs: return open_iq4_xs(from, to);
        case Block::nvfp4: return open_nvfp4(from, to);
        default: return open_small(type, from, to);
    }
}

void put_half(std::uint16_t half, int lane, std::uint8_t* to) {
    if ((half & 0x7c00) == 0x7c00) throw std::runtime_error("a scale of a quantized weight is no finite number");
    to[2 * lane] = std::uint8_t(half), to[2 * lane + 1] = std::uint8_t(half >> 8);
}

// 32 codes of an output to the planes of its strip.
void put_codes(const std::uint8_t* codes, int bits, int lane, std::uint8_t* to) {
    const auto at = [lane](int line, int input) { return 64 * line + 4 * lane + input % 4; };
    int done = 0;  // bits
    if (bits == 8)
        for (int i = 0; i < 32; i++) to[at(i / 4, i)] = codes[i];
    if (bits == 8) return;
    if (bits >= 4) {
        for (int i = 0; i < 32; i++) to[at(i / 4 % 4, i)] |= std::uint8_t((codes[i] & 15) << i / 16 * 4);
        to += 256, done = 4;
    }
    if (bits - done >= 2) {
        for (int i = 0; i < 32; i++) to[at(i / 4 % 2, i)] |= std::uint8_t((codes[i] >> done & 3) << i / 8 * 2);
        to += 128, done += 2;
    }
    if (bits > done)
        for (int i = 0; i < 32; i++) to[at(0, i)] |= std::uint8_t((codes[i] >> done & 1) << i / 4);
}

// What `put_codes` put.
void take_codes(const std::uint8_t* from, int bits, int lane, std::uint8_t* codes) {
    const auto in_line = [&](int line, int input) { return int(from[64 * line + 4 * lane + input % 4]); };
    int done = 0;  // bits
    for (int i = 0; i < 32; i++)
        codes[i] = std::uint8_t(bits == 8 ? in_line(i / 4, i) : bits >= 4 ? in_line(i / 4 % 4, i) >> i / 16 * 4 & 15 : 0);
    if (bits == 8) return;
    if (bits >= 4) from += 256, done = 4;
    if (bits - done >= 2) {
        for (int i = 0; i < 32; i++) codes[i] |= std::uint8_t((in_line(i / 4 % 2, i) >> i / 8 * 2 & 3) << done);
        from += 128, done += 2;
    }
    if (bits > done)
        for (int i = 0; i < 32; i++) codes[i] |= std::uint8_t((in_line(0, i) >> i / 4 & 1) << done);
}

float widen(std::uint16_t half) {  // of a finite float16
    const std::uint32_t word = std::uint32_t(half & 0x7fff) << 13;
    float size;
    std::memcpy(&size, &word, 4);
    return half & 0x8000 ? -(size * 0x1p112f) : size * 0x1p112f;
}

float to_bf16(float x) {
    std::uint32_t word;
    std::memcpy(&word, &x, 4);
    word = (word + 0x7fff + (word >> 16 & 1)) & 0xffff0000u;
    std::memcpy(&x, &word, 4);
    return x;
}

// A sub-block's scale, before `d`.
float scale_of(Scales kind, std::uint8_t byte) {
    switch (kind) {
        case Scales::none: return 1;
        case Scales::bytes: return std::int8_t(byte);
        case Scales::nibbles: return byte;
        case Scales::powers: return std::ldexp(1.0f, byte - 128);
        default: return widen(std::uint16_t(byte << 7)) * 128;
    }
}

void read_open(Block type, const Open& open, float* out) {
    const Format& format = format_of(type);
    const float d = format.heads() ? widen(open.d) : 1, m = format.leasts ? widen(open.m) : 0;
    for (int i = 0; i < format.span; i++) {
        const int sub = i / format.sub;
        const int code = (format.table ? table_of(type)[open.codes[i]] : open.codes[i]) - format.zero;
        const float scale = d * scale_of(format.scales, open.scales[sub]);
        const float least = format.scales == Scales::none ? m : m * open.leasts[sub];
        out[i] = to_bf16(format.leasts ? scale * code + least : scale * code);
    }
}

}  // namespace

void read_row(const od_blocks& from, int index, int num_in, float* out) {
    const Block type = Block(from.type);
    const Format& format = format_of(type);
    const std::uint8_t* row = from.rows + std::size_t(index) * (num_in / format.span) * format.stored;
    Open open{};
    for (int first = 0; first < num_in; first += format.span, row += format.stored) {
        open_block(type, row, open);
        read_open(type, open, out + first);
    }
}

void read_strip(Block type, const std::uint8_t* strip, int lane, int num_in, float* out) {
    const Format& format = format_of(type);
    const int subs = format.subs();
    Open open{};
    for (int first = 0; first < num_in; first += format.span) {
        if (format.heads() > 0) open.d = half_at(strip + 2 * lane);
        if (format.heads() > 1) open.m = half_at(strip + 32 + 2 * lane);
        strip += 32 * format.heads();
        for (int group = 0; group < format.span / 32; group++, strip += format.group_bytes()) {
            for (int i = 0; i < subs && format.scales != Scales::none; i++) {
                const std::uint8_t scale = strip[16 * i + lane];
                const bool halved = format.scales == Scales::nibbles, leasts = format.leasts && !halved;
                open.scales[group * subs + i] = halved ? scale & 15 : scale;
                open.leasts[group * subs + i] = leasts ? strip[16 * (subs + i) + lane] : std::uint8_t(scale >> 4);
            }
            take_codes(strip + format.scale_bytes(), format.bits, lane, open.codes + 32 * group);
        }
        read_open(type, open, out + first);
    }
}

void read_codes(const std::uint8_t* codes, int bits, std::uint16_t scale, int lane, float* out) {
    std::uint8_t taken[32];
    take_codes(codes, bits, lane, taken);
    for (int i = 0; i < 32; i++) out[i] = to_bf16(widen(scale) * (taken[i] - (1 << (bits - 1))));
}

void pack_blocks(Block type, const std::uint8_t* row, int num_in, int lane, std::uint8_t* strip) {
    const Format& format = format_of(type);
    Open open{};
    for (int first = 0; first < num_in; first += format.span, row += format.stored) {
        open_block(type, row, open);
        if (format.heads() > 0) put_half(open.d, lane, strip);
        if (format.heads() > 1) put_half(open.m, lane, strip + 32);
        strip += 32 * format.heads();
        for (int group = 0; group < format.span / 32; group++) {
            const int subs = format.subs();
            for (int i = 0; i < subs && format.scales != Scales::none; i++) {
                const std::uint8_t scale = open.scales[group * subs + i], least = open.leasts[group * subs + i];
                strip[16 * i + lane] = format.scales == Scales::nibbles ? std::uint8_t(scale | least << 4) : scale;
                if (format.scales == Scales::bytes && format.leasts) strip[16 * (subs + i) + lane] = least;
            }
            put_codes(open.codes + 32 * group, format.bits, lane, strip + format.scale_bytes());
            strip += format.group_bytes();
        }
    }
}

}  // namespace outdraft

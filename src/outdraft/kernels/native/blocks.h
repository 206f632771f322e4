// Block formats of GGUF files (ggml's block_q4_0 to block_nvfp4): small integers with a scale, and some with a least value,
// for each 32 or 16 inputs; in the formats of 256 inputs these are small integers themselves, with a float16 for all.
//
//   weight = d * scale * (code - zero) + m * least           zero 0 where there are least values; scale, least 1 in spans of 32
//
// Packed, strips of 16 outputs stand behind each other. A strip is its spans, a span is
//   d [16] float16, m [16] float16 (its sign turned where the file subtracts)         as far as the format has them
//   and for each 32 inputs   scales [16] a sub-block, then leasts [16], bytes; codes [64 * bits]
// Codes lie in planes of 4, 2 and 1 bits, the high bits last; in each a word is four inputs of an output, 16 outputs a line:
//   4 bits   line i holds word i in its low halves and word i + 4 in its high ones
//   2 bits   line i holds words i, i + 2, i + 4, i + 6, the lowest bits first
//   1 bit    one line holds the eight words
//   8 bits   line i holds word i
#pragma once
#include <cstddef>
#include <cstdint>

extern "C" struct od_blocks {  // rows of blocks as a GGUF file has them
    int type, num_out;         // Block; outputs
    const std::uint8_t* rows;
    float factor;              // of its sums, in products
};

namespace outdraft {

enum class Block : int { q4_0, q4_1, q5_0, q5_1, q8_0, q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl, iq4_xs, mxfp4, nvfp4 };
constexpr int kBlockTypes = 14;

enum class Scales : int {
    none,      // d alone
    bytes,     // signed
    nibbles,   // the low half of a byte; the least value is the high one
    powers,    // no d: 2^(byte - 128)
    floats,    // no d: half of a float of 4 bits of exponent and 3 of mantissa
};

struct Format {
    int span, stored;  // inputs and bytes of a block in the file
    int bits, sub;     // of a code; inputs that share a scale: 32 or 16
    int zero;          // what is taken off a code
    bool leasts, table;  // table: a code is a place in a table of 16 signed bytes
    Scales scales;

    constexpr int heads() const { return scales > Scales::nibbles ? 0 : leasts ? 2 : 1; }
    constexpr int subs() const { return 32 / sub; }
    constexpr int scale_bytes() const {  // for 32 inputs
        return scales == Scales::none ? 0 : 16 * subs() * (scales == Scales::bytes && leasts ? 2 : 1);
    }
    constexpr int group_bytes() const { return scale_bytes() + 64 * bits; }
    constexpr int span_bytes() const { return 32 * heads() + span / 32 * group_bytes(); }
    constexpr std::size_t strip_bytes(int num_in) const { return std::size_t(num_in / span) * span_bytes(); }
};

constexpr Format kFormats[kBlockTypes] = {
    {32, 18, 4, 32, 8, false, false, Scales::none},      // q4_0
    {32, 20, 4, 32, 0, true, false, Scales::none},       // q4_1
    {32, 22, 5, 32, 16, false, false, Scales::none},     // q5_0
    {32, 24, 5, 32, 0, true, false, Scales::none},       // q5_1
    {32, 34, 8, 32, 128, false, false, Scales::none},    // q8_0
    {256, 84, 2, 16, 0, true, false, Scales::nibbles},   // q2_k
    {256, 110, 3, 16, 4, false, false, Scales::bytes},   // q3_k
    {256, 144, 4, 32, 0, true, false, Scales::bytes},    // q4_k
    {256, 176, 5, 32, 0, true, false, Scales::bytes},    // q5_k
    {256, 210, 6, 16, 32, false, false, Scales::bytes},  // q6_k
    {32, 18, 4, 32, 128, false, true, Scales::none},     // iq4_nl
    {256, 136, 4, 32, 128, false, true, Scales::bytes},  // iq4_xs
    {32, 17, 4, 32, 12, false, true, Scales::powers},   // mxfp4
    {64, 36, 4, 16, 12, false, true, Scales::floats},   // nvfp4
};
constexpr const Format& format_of(Block type) { return kFormats[int(type)]; }

// What codes of a table stand for, each plus the format's zero.
constexpr std::uint8_t kCurve[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
constexpr std::uint8_t kFours[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
constexpr const std::uint8_t* table_of(Block type) { return type >= Block::mxfp4 ? kFours : kCurve; }

// From a row of blocks as the file has them, `num_in` inputs, to row `lane` of a packed strip, which is zeroed before.
// Throws where a scale is no finite number.
void pack_blocks(Block type, const std::uint8_t* row, int num_in, int lane, std::uint8_t* strip);

// The numbers that row `index` stands for, rounded to bf16: [num_in].
void read_row(const od_blocks& from, int index, int num_in, float* out);

// The same of row `lane` of a packed strip.
void read_strip(Block type, const std::uint8_t* strip, int lane, int num_in, float* out);

// The same of 32 codes in planes of 4 or 8 bits, as packed.h's grids have them, of one scale.
void read_codes(const std::uint8_t* codes, int bits, std::uint16_t scale, int lane, float* out);

}  // namespace outdraft

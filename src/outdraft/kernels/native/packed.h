// A weight matrix [N, K] laid out so that each byte is read once for all rows of a product.
//
//   64 outputs stand together (16 where groups of inputs have scales); K runs inside in the unit of the dot product:
//   2 (bf16) or 4 (bytes)
//   bf16   [N/64][K/2][64][2]
//   int8   [N/64][K/4][64][4]          one scale an output
//   int8g  [N/16][K/32][8][16][4]      each byte plus 128; scales [N/16][K/step][16] float16
//   int4   [N/16][K/32][4][16][4]      a byte holds two values, low half of word j, high half of word j + 4; as int8g
//   blocks parts of several outputs, each of one format of GGUF files (blocks.h)
// N is filled up to a multiple of 64 with zeros. The layouts are those of every instruction set.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "blocks.h"

namespace outdraft {

constexpr int kBlock = 64;  // outputs that stand together
constexpr int kGroup = 32;  // inputs that stand together in int8g and int4; no scale belongs to fewer
constexpr int kWideGroup = 128;

struct Free {
    bool owned = true;  // false: lent, the lender's to free
    void operator()(void* p) const {
        if (owned) std::free(p);
    }
};
template <class T>
using Buffer = std::unique_ptr<T[], Free>;

// Zeroed, at a 64-byte boundary (2 MiB for large ones, so that the system can use large pages).
void* allocate(std::size_t bytes);
template <class T>
Buffer<T> make_buffer(std::size_t count) {
    return Buffer<T>(static_cast<T*>(allocate(count * sizeof(T))));
}

enum class Kind { bf16, int8, int8g, int4, blocks };

struct BlockPart {  // outputs of one format; blocks of 64, the last filled up with zeros
    Block type;
    int first_out, num_out, first_block;
    float factor;  // of all sums
    Buffer<std::uint8_t> data;
    int blocks() const { return (num_out + kBlock - 1) / kBlock; }
};
struct Place {
    int first, width;  // outputs
};
constexpr int kMostParts = 4;

struct Matrix {
    Kind kind = Kind::bf16;
    int num_out = 0, num_in = 0;
    int step = kGroup;  // int8g and int4: inputs that are summed before a scale, kGroup or kWideGroup
    Buffer<std::uint8_t> data;
    Buffer<float> scales;             // int8 [N]
    Buffer<std::uint16_t> halves;     // int8g and int4 [N/16][K/step][16]: scales as float16
    Buffer<std::int32_t> correction;  // int8 [N]: 128 * sum of the row, since activations are stored with + 128
    Buffer<float> bias;               // [N], or null
    std::vector<BlockPart> parts;     // blocks
    int blocks() const {
        return parts.empty() ? (num_out + kBlock - 1) / kBlock : parts.back().first_block + parts.back().blocks();
    }
    const BlockPart& part_of(int block) const {
        std::size_t i = parts.size() - 1;
        while (parts[i].first_block > block) i--;
        return parts[i];
    }
    Place place(int block) const {  // the outputs of a block
        int first = block * kBlock, end = num_out;
        if (!parts.empty()) {
            const BlockPart& part = part_of(block);
            first = part.first_out + (block - part.first_block) * kBlock, end = part.first_out + part.num_out;
        }
        return {first, end - first < kBlock ? end - first : kBlock};
    }
    const std::uint8_t* strip(int i) const { return data.get() + std::size_t(i) * 16 * num_in / (kind == Kind::int4 ? 2 : 1); }
    const std::uint16_t* strip_scales(int i) const { return halves.get() + std::size_t(i) * 16 * (num_in / step); }
    bool is_grouped() const { return kind == Kind::int8g || kind == Kind::int4; }
    std::size_t data_bytes() const;
    std::size_t bytes() const;  // of all buffers
};

// Calls work(buffer, entries) for every buffer of a matrix of this kind and size, in the order of an image (image.h).
template <class M, class Work>
void each_buffer(M& m, bool biased, Work work) {
    const std::size_t outs = std::size_t(m.blocks()) * kBlock;
    if (m.kind == Kind::blocks)
        for (auto& part : m.parts)
            work(part.data, std::size_t(part.blocks()) * (kBlock / 16) * format_of(part.type).strip_bytes(m.num_in));
    else
        work(m.data, m.data_bytes());
    if (m.kind == Kind::int8) work(m.scales, outs);
    if (m.is_grouped()) work(m.halves, outs * (m.num_in / m.step));
    if (m.kind == Kind::int8) work(m.correction, outs);
    if (biased) work(m.bias, outs);
}

Matrix pack_bf16(const std::uint16_t* weight, int num_out, int num_in);
void unpack_bf16(const Matrix& matrix, std::uint16_t* weight);  // the weight [N, K] that it was made from
// The numbers of one row, rounded to bf16: [K]. Of integers those that have scales by groups of inputs.
void read_row(const Matrix& matrix, int row, float* out);
Matrix pack_int8(const std::int8_t* weight, const float* scales, int num_out, int num_in);
// weight [N, K] -> int8g; scales [N, K/group].
Matrix pack_int8_groups(const std::int8_t* weight, const float* scales, int num_out, int num_in, int group);
// weight [N, K/2]: low nibble = even input, value = nibble - 8; scales [N, K/group].
Matrix pack_int4(const std::uint8_t* weight, const float* scales, int num_out, int num_in, int group);
// Parts behind each other: rows of a file's blocks.
Matrix pack_parts(const od_blocks* parts, int count, int num_out, int num_in);
void set_bias(Matrix& matrix, const float* bias);

}  // namespace outdraft

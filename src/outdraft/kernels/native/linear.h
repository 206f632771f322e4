// Products of a few rows with a packed matrix: x [R, K] -> out [R, N].
//
// A tile is up to kTall rows times 64 outputs, held in registers while K runs once through the block's bytes; the
// block stays in the cache for the next tile of rows. Every sum runs over K in one order, so a row's bits do not
// depend on how many rows there are.
#pragma once
#include "packed.h"
#include "simd.h"

namespace OD_ISA {

using outdraft::Kind;
using outdraft::Matrix;
using outdraft::kBlock;
using outdraft::kGroup;

#if defined(__AVX512F__)
constexpr int kTall = 6;
#else
constexpr int kTall = 2;
#endif

// Activations of some rows in the form that one kind of matrix wants; each part is [R, K] or [R, K / 32].
struct Operand {
    bf16* half = nullptr;            // bf16
    std::uint8_t* bytes = nullptr;   // int8: x / scale + 128; int8g, int4: x / scale, signed
    float* scales = nullptr;         // int8: [R]; int8g, int4: [R, K / 32]
    std::int32_t* offsets = nullptr; // int8g, int4: 128 or 8 times the sum of the group's bytes: what is added to each weight
};

static inline float byte_scale(float top) { return top > 0 ? top / 127 : 1.0f; }

// Row r of the operand from x [K].
static inline void prepare(Kind kind, const float* x, int k_size, Operand& to, int r) {
    if (kind == Kind::bf16) {
        for (int k = 0; k < k_size; k += 16) narrow(to.half + std::size_t(r) * k_size + k, load(x + k));
        return;
    }
    const int span = kind == Kind::int8 ? k_size : kGroup;
    std::uint8_t* bytes = to.bytes + std::size_t(r) * k_size;
    for (int first = 0; first < k_size; first += span) {
        f32x16 top = {};
        for (int k = first; k < first + span; k += 16) top = max(top, magnitude(load(x + k)));
        const float scale = byte_scale(largest(top));
        const std::size_t at = kind == Kind::int8 ? std::size_t(r) : std::size_t(r) * (k_size / kGroup) + first / kGroup;
        to.scales[at] = scale;
        std::int32_t total = 0;
        for (int k = first; k < first + span; k += 16) {
            i32x16 q = nearest(load(x + k) * (1 / scale));
            if (kind == Kind::int8) q += 128;
            else for (int i = 0; i < 16; i++) total += q[i];
            u8x16 out = __builtin_convertvector(q, u8x16);
            std::memcpy(bytes + k, &out, 16);
        }
        if (kind != Kind::int8) to.offsets[at] = (kind == Kind::int8g ? 128 : 8) * total;
    }
}

template <int R>
static inline void tile_bf16(const Matrix& m, int block, const Operand& x, int row, float* out, std::size_t stride) {
    const int k_size = m.num_in;
    const bf16* w = reinterpret_cast<const bf16*>(m.data.get()) + std::size_t(block) * kBlock * k_size;
    f32x16 acc[R][4] = {};
    for (int k = 0; k < k_size; k += 2, w += 2 * kBlock) {
        __builtin_prefetch(w + 2 * kBlock * 16);
        __builtin_prefetch(w + 2 * kBlock * 16 + 64);
        for (int r = 0; r < R; r++) {
            std::uint32_t pair;
            std::memcpy(&pair, x.half + std::size_t(row + r) * k_size + k, 4);
            for (int c = 0; c < 4; c++) acc[r][c] = dot_pair(acc[r][c], w + 32 * c, pair);
        }
    }
    for (int r = 0; r < R; r++)
        for (int c = 0; c < 4; c++) store(out + r * stride + 16 * c, acc[r][c]);
}

template <int R>
static inline void tile_int8(const Matrix& m, int block, const Operand& x, int row, float* out, std::size_t stride) {
    const int k_size = m.num_in;
    const std::uint8_t* w = m.data.get() + std::size_t(block) * kBlock * k_size;
    i32x16 acc[R][4] = {};
    for (int k = 0; k < k_size; k += 4, w += 4 * kBlock) {
        __builtin_prefetch(w + 4 * kBlock * 16);
        __builtin_prefetch(w + 4 * kBlock * 16 + 128);
        i8x64 weight[4];
        std::memcpy(weight, w, 4 * kBlock);
        for (int r = 0; r < R; r++) {
            const u8x64 word = repeat_word(x.bytes + std::size_t(row + r) * k_size + k);
            for (int c = 0; c < 4; c++) acc[r][c] = dot_bytes(acc[r][c], word, weight[c]);
        }
    }
    const float* scales = m.scales.get() + std::size_t(block) * kBlock;
    const std::int32_t* correction = m.correction.get() + std::size_t(block) * kBlock;
    for (int r = 0; r < R; r++)
        for (int c = 0; c < 4; c++) {
            const f32x16 whole = to_float(acc[r][c] - load(correction + 16 * c));
            store(out + r * stride + 16 * c, whole * load(scales + 16 * c) * x.scales[row + r]);
        }
}

template <int R>
static inline void tile_int4(const Matrix& m, int block, const Operand& x, int row, float* out, std::size_t stride) {
    const int k_size = m.num_in, groups = k_size / kGroup;
    const std::uint8_t* w = m.data.get() + std::size_t(block) * groups * 1024;
    const float* scales = m.scales.get() + std::size_t(block) * groups * kBlock;
    f32x16 acc[R][4] = {};
    for (int g = 0; g < groups; g++, w += 1024, scales += kBlock) {
        for (int c = 0; c < 4; c++) {
            u8x64 low[4], high[4];
            for (int j = 0; j < 4; j++) {
                u32x16 word;
                std::memcpy(&word, w + (c * 4 + j) * 64, 64);
                __builtin_prefetch(w + (c * 4 + j) * 64 + 2048);
                low[j] = (u8x64)(word & 0x0f0f0f0fu);
                high[j] = (u8x64)((word >> 4) & 0x0f0f0f0fu);
            }
            const f32x16 scale = load(scales + 16 * c);
            for (int r = 0; r < R; r++) {
                const std::uint8_t* bytes = x.bytes + std::size_t(row + r) * k_size + g * kGroup;
                const std::size_t at = std::size_t(row + r) * groups + g;
                i32x16 even = set1(-x.offsets[at]), odd = {};
                for (int j = 0; j < 4; j++) {
                    even = dot_bytes(even, low[j], (i8x64)repeat_word(bytes + 4 * j));
                    odd = dot_bytes(odd, high[j], (i8x64)repeat_word(bytes + 4 * j + 16));
                }
                acc[r][c] = fma(to_float(even + odd), scale * x.scales[at], acc[r][c]);
            }
        }
    }
    for (int r = 0; r < R; r++)
        for (int c = 0; c < 4; c++) store(out + r * stride + 16 * c, acc[r][c]);
}

// Bytes in groups: as int4, with each weight a byte of its own.
template <int R>
static inline void tile_int8_groups(const Matrix& m, int block, const Operand& x, int row, float* out, std::size_t stride) {
    const int k_size = m.num_in, groups = k_size / kGroup;
    const std::uint8_t* w = m.data.get() + std::size_t(block) * kBlock * k_size;
    const float* scales = m.scales.get() + std::size_t(block) * groups * kBlock;
    f32x16 acc[R][4] = {};
    for (int g = 0; g < groups; g++, scales += kBlock) {
        for (int c = 0; c < 4; c++, w += 512) {
            u8x64 weight[8];
            for (int j = 0; j < 8; j++) {
                std::memcpy(&weight[j], w + j * 64, 64);
                __builtin_prefetch(w + j * 64 + 4096);
            }
            const f32x16 scale = load(scales + 16 * c);
            for (int r = 0; r < R; r++) {
                const std::uint8_t* bytes = x.bytes + std::size_t(row + r) * k_size + g * kGroup;
                const std::size_t at = std::size_t(row + r) * groups + g;
                i32x16 even = set1(-x.offsets[at]), odd = {};
                for (int j = 0; j < 8; j += 2) {
                    even = dot_bytes(even, weight[j], (i8x64)repeat_word(bytes + 4 * j));
                    odd = dot_bytes(odd, weight[j + 1], (i8x64)repeat_word(bytes + 4 * j + 4));
                }
                acc[r][c] = fma(to_float(even + odd), scale * x.scales[at], acc[r][c]);
            }
        }
    }
    for (int r = 0; r < R; r++)
        for (int c = 0; c < 4; c++) store(out + r * stride + 16 * c, acc[r][c]);
}

static inline bool is_grouped(Kind kind) { return kind == Kind::int8g || kind == Kind::int4; }

template <int R>
static inline void tile(const Matrix& m, int block, const Operand& x, int row, float* out, std::size_t stride) {
    if (m.kind == Kind::bf16) tile_bf16<R>(m, block, x, row, out, stride);
    else if (m.kind == Kind::int8) tile_int8<R>(m, block, x, row, out, stride);
    else if (m.kind == Kind::int8g) tile_int8_groups<(R < 4 ? R : 4)>(m, block, x, row, out, stride);
    else tile_int4<(R < 4 ? R : 4)>(m, block, x, row, out, stride);
}

// Rows row.. of one block, at most kTall (in groups: 4); returns how many were done.
static inline int tiles(const Matrix& m, int block, const Operand& x, int row, int left, float* out, std::size_t stride) {
    const int most = is_grouped(m.kind) && kTall > 4 ? 4 : kTall;
    const int rows = left < most ? left : most;
    switch (rows) {
#if defined(__AVX512F__)
        case 6: tile<6>(m, block, x, row, out, stride); break;
        case 5: tile<5>(m, block, x, row, out, stride); break;
        case 4: tile<4>(m, block, x, row, out, stride); break;
        case 3: tile<3>(m, block, x, row, out, stride); break;
#endif
        case 2: tile<2>(m, block, x, row, out, stride); break;
        default: tile<1>(m, block, x, row, out, stride); break;
    }
    return rows;
}

// One row's outputs of a block, with the bias.
static inline void write_line(const Matrix& m, int first, int width, const float* from, float* to) {
    if (from != to) std::memcpy(to, from, sizeof(float) * width);
    if (m.bias)
        for (int i = 0; i < width; i++) to[i] += m.bias[first + i];
}

// Worker `id` of `team` computes its share of the outputs: out [R, stride], stride >= N.
static inline void tile_product(const Matrix& m, const Operand& x, int rows, float* out, std::size_t stride, int id, int team) {
    const int blocks = m.blocks();
    for (int block = blocks * id / team; block < blocks * (id + 1) / team; block++) {
        const int first = block * kBlock, width = m.num_out - first < kBlock ? m.num_out - first : kBlock;
        for (int row = 0; row < rows;) {
            float edge[kTall][kBlock];
            const bool whole = width == kBlock;
            float* to = whole ? out + std::size_t(row) * stride + first : edge[0];
            const int done = tiles(m, block, x, row, rows - row, to, whole ? stride : kBlock);
            for (int r = 0; r < done; r++, row++) {
                float* line = out + std::size_t(row) * stride + first;
                write_line(m, first, width, whole ? line : edge[r], line);
            }
        }
    }
}

}  // namespace OD_ISA

// Products of a few rows with a packed matrix: x [R, K] -> out [R, N].
//
// A tile is up to kTall rows times 64 outputs, held in registers while K runs once through the block's bytes; the
// block stays in the cache for the next tile of rows. Every sum runs over K in one order, so a row's bits do not
// depend on how many rows there are.
#pragma once
#if defined(__AVX2__) && !defined(__AVX512F__)
#include "tiles_avx2.h"
#elif defined(OD_NEON)
#include "tiles_neon.h"
#else
#include "tiles.h"
#endif
#include "block_tiles.h"
#include "team.h"

namespace OD_ISA {

using outdraft::Share;

constexpr int kMostRows = 16;  // of a tile
#if defined(__AVX2__) && !defined(__AVX512F__)
constexpr int kChunk = 60;  // rows at most
#else
constexpr int kChunk = 1 << 20;
#endif

template <int R>
static inline void tile(const Matrix& m, int block, const Operand& x, int row, float* out, std::size_t stride) {
    constexpr int some = R < kTallGrouped ? R : kTallGrouped;
    if (m.kind == Kind::int8g) return tile_grouped<false, some>(m, block, x, row, out, stride);
    if (m.kind == Kind::int4) return tile_grouped<true, some>(m, block, x, row, out, stride);
    if (m.kind == Kind::blocks) return tile_blocks<some>(m, block, x, row, out, stride);
    if (m.kind == Kind::bf16) tile_bf16<(R < kTall ? R : kTall)>(m, block, x, row, out, stride);
    else tile_int8<(R < kTallBytes ? R : kTallBytes)>(m, block, x, row, out, stride);
}

// Rows row.. of one block, as many as a tile holds; returns how many were done.
static inline int tiles(const Matrix& m, int block, const Operand& x, int row, int left, float* out, std::size_t stride) {
    const int most = m.kind == Kind::bf16 ? kTall : m.kind == Kind::int8 ? kTallBytes : kTallGrouped;
    const int parts = (left + most - 1) / most;
    const int rows = (left + parts - 1) / parts;  // tiles of like height
    switch (rows) {
#define OD_CASE(R) case R: tile<R>(m, block, x, row, out, stride); break;
#if defined(__AVX512F__)
        OD_CASE(12) OD_CASE(11) OD_CASE(10) OD_CASE(9) OD_CASE(8) OD_CASE(7) OD_CASE(6)
#endif
#if defined(__AVX2__)
        OD_CASE(5)
#endif
#if defined(__AVX2__) || defined(OD_NEON)
        OD_CASE(4) OD_CASE(3)
#endif
        OD_CASE(2) OD_CASE(1)
#undef OD_CASE
    }
    return rows;
}

// One row's outputs of a block, with the bias.
static inline void write_line(const Matrix& m, int first, int width, const float* from, float* to) {
    if (from != to) std::memcpy(to, from, sizeof(float) * width);
    if (m.bias)
        for (int i = 0; i < width; i++) to[i] += m.bias[first + i];
}

// A member's share of the outputs, out [R, stride], stride >= N, a block of outputs and a chunk of rows at a time: the
// second cache holds 60 rows of up to 2,048 inputs, and two members have like shares of few blocks.
// `tile(block, row, left, to, step)` writes 64 outputs of some of the `left` rows from `row` on to lines that are `step`
// apart, and returns how many rows it did.
template <class Tile>
static inline void each_block(const Matrix& m, int rows, float* out, std::size_t stride, Share& share, Tile tile) {
    const int blocks = m.blocks(), chunks = (rows + kChunk - 1) / kChunk;
    share.each(chunks * blocks, [&](int piece) {
        const int block = piece % blocks, chunk = piece / blocks, begin = rows * chunk / chunks, end = rows * (chunk + 1) / chunks;
        const auto [first, width] = m.place(block);
        for (int row = begin; row < end;) {
            alignas(64) float edge[kMostRows][kBlock];
            const bool whole = width == kBlock;
            float* to = whole ? out + std::size_t(row) * stride + first : edge[0];
            const int done = tile(block, row, end - row, to, whole ? stride : std::size_t(kBlock));
            for (int r = 0; r < done; r++, row++) {
                float* line = out + std::size_t(row) * stride + first;
                write_line(m, first, width, whole ? line : edge[r], line);
            }
        }
    });
}

static inline void tile_product(const Matrix& m, const Operand& x, int rows, float* out, std::size_t stride, Share& share) {
    each_block(m, rows, out, stride, share, [&](int block, int row, int left, float* to, std::size_t step) {
        return tiles(m, block, x, row, left, to, step);
    });
}

}  // namespace OD_ISA

// Products on Intel's matrix unit (AMX): a tile of 16 rows times 16 outputs takes 32 bf16 or 64 byte inputs at once.
//
// The packed layouts of packed.h are what its second operand wants: 16 lines of 64 bytes, 256 bytes apart. The unit
// computes each row by itself, so a row's bits do not depend on how many rows share a tile.
#pragma once
#if defined(__AMX_BF16__) && defined(__AMX_INT8__)
#include "linear.h"

namespace OD_ISA {

constexpr int kTileRows = 16;
constexpr int kFewRows = 2;  // at most so many do not fill the unit
constexpr int kManyRows = 96;  // so many take long enough that the next block can come meanwhile
constexpr int kLine = 4 * kBlock;  // bytes between two lines of a packed block
constexpr int kStep = kTileRows * kLine;  // bytes of a block that one step takes

// Tiles 0-3 hold sums [rows, 16], tiles 4 and 5 activations [rows, line bytes], tiles 6 and 7 weights [line / 4, 64 bytes].
static inline void configure_tiles(int rows, int line = 64) {
    struct alignas(64) {
        std::uint8_t palette = 1, start = 0, reserved[14] = {};
        std::uint16_t bytes[16] = {};
        std::uint8_t rows[16] = {};
    } config;
    for (int i = 0; i < 8; i++) {
        config.bytes[i] = std::uint16_t(i == 4 || i == 5 ? line : 64);
        config.rows[i] = std::uint8_t(i < 6 ? rows : line / 4);
    }
    asm volatile("" ::"r"(&config) : "memory");  // GCC 12 thinks that only its first bytes are read
    _tile_loadconfig(&config);
}

// What is asked for while a block is multiplied: tile loads wait for memory one line after the other unless somebody asked
// in time. The first rows ask for the next step; where many follow, they ask for the next block, a part at each step.
struct Ahead {
    const std::uint8_t* next;
    int lines;  // of `next`, at each step
    bool is_first = true;
    void ask(const std::uint8_t* w) {
        if (is_first)
            for (int line = 0; line < kStep; line += 64) __builtin_prefetch(w + kStep + line);
        else
            for (int i = 0; i < lines; i++, next += 64) __builtin_prefetch(next, 0, 2);  // into the second cache
    }
};

// Four tiles of sums: `x` and `x2` are the first and second 16 rows, `w` and its neighbours 16 outputs each.
template <bool Bytes, bool Tall>
static inline void multiply_tiles(const std::uint8_t* x, std::size_t x_stride, const std::uint8_t* w, int steps, Ahead& ahead) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    const std::uint8_t* x2 = x + kTileRows * x_stride;
#define OD_DOT(sum, a, b)                              \
    if constexpr (Bytes) { _tile_dpbusd(sum, a, b); }  \
    else { _tile_dpbf16ps(sum, a, b); }
    for (int k = 0; k < steps; k++, x += 64, x2 += 64, w += kStep) {
        ahead.ask(w);
        _tile_loadd(4, x, x_stride);
        if constexpr (Tall) { _tile_loadd(5, x2, x_stride); }
        _tile_loadd(6, w, kLine);
        _tile_loadd(7, w + 64, kLine);
        OD_DOT(0, 4, 6)
        OD_DOT(1, 4, 7)
        if constexpr (Tall) {
            OD_DOT(2, 5, 6)
            OD_DOT(3, 5, 7)
        } else {
            _tile_loadd(6, w + 128, kLine);
            _tile_loadd(7, w + 192, kLine);
            OD_DOT(2, 4, 6)
            OD_DOT(3, 4, 7)
        }
    }
#undef OD_DOT
}

// Byte sums [rows, 64] to floats, in place.
static inline void scale_bytes(const Matrix& m, int block, const Operand& x, int row, int rows, float* sums) {
    const float* scales = m.scales.get() + std::size_t(block) * kBlock;
    const std::int32_t* correction = m.correction.get() + std::size_t(block) * kBlock;
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < kBlock; i += 16) {
            float* at = sums + r * kBlock + i;
            i32x16 whole;
            std::memcpy(&whole, at, 64);
            store(at, to_float(whole - load(correction + i)) * load(scales + i) * x.scales[row + r]);
        }
}

// One block of 64 outputs for up to 32 rows from `row` on -> sums [32, 64]; returns how many rows were done.
template <bool Bytes>
static inline int amx_block(const Matrix& m, int block, const Operand& x, int row, int left, float* sums, Ahead& ahead) {
    const std::size_t stride = line_bytes(m), depth = std::size_t(m.num_in) * (Bytes ? 1 : 2);
    const std::uint8_t* lines = Bytes ? x.bytes : reinterpret_cast<const std::uint8_t*>(x.half);
    const std::uint8_t* w = m.data.get() + std::size_t(block) * kBlock * depth;
    const int steps = int(depth / 64), rows = left < 2 * kTileRows ? left : 2 * kTileRows;
    lines += row * stride;
    if (rows <= kTileRows) {
        multiply_tiles<Bytes, false>(lines, stride, w, steps, ahead);
        _tile_stored(0, sums, kLine);
        _tile_stored(1, sums + 16, kLine);
        _tile_stored(2, sums + 32, kLine);
        _tile_stored(3, sums + 48, kLine);
    } else {
        for (int half = 0; half < 2; half++) {
            float* to = sums + 32 * half;
            multiply_tiles<Bytes, true>(lines, stride, w + 128 * half, steps, ahead);
            ahead.is_first = false;
            _tile_stored(0, to, kLine);
            _tile_stored(1, to + 16, kLine);
            _tile_stored(2, to + kTileRows * kBlock, kLine);
            _tile_stored(3, to + kTileRows * kBlock + 16, kLine);
        }
    }
    if (Bytes) scale_bytes(m, block, x, row, rows, sums);
    return rows;
}

// A member's share; the operand has room for whole tiles of rows.
template <bool Bytes>
static inline void amx_product(const Matrix& m, const Operand& x, int rows, float* out, std::size_t stride, Share& share) {
    alignas(64) float sums[2 * kTileRows * kBlock];
    const std::size_t block_bytes = std::size_t(m.num_in) * (Bytes ? 1 : 2) * kBlock;
    const int lines = rows < kManyRows ? 0 : (kStep / 64 * kTileRows + rows - 1) / rows;
    configure_tiles(rows < kTileRows ? rows : kTileRows);
    share.each(m.blocks(), [&](int block) {
        const int first = block * kBlock, width = m.num_out - first < kBlock ? m.num_out - first : kBlock;
        Ahead ahead{m.data.get() + (block + 1) * block_bytes, lines};
        for (int row = 0; row < rows;) {
            const int done = amx_block<Bytes>(m, block, x, row, rows - row, sums, ahead);
            for (int r = 0; r < done; r++, row++) write_line(m, first, width, sums + r * kBlock, out + row * stride + first);
        }
    });
    _tile_release();
}

}  // namespace OD_ISA
#endif

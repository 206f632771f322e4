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
constexpr int kTallRows = 2 * kTileRows;  // rows that are multiplied with 32 outputs at once
constexpr int kDeep = 4;  // steps that all rows take before the next ones, so that weights stay in the first cache
constexpr int kMostTall = 8, kPanel = 1 << 20;  // rows at once: so many times kTallRows, with so many bytes of activations
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

#define OD_DOT(sum, a, b)                              \
    if constexpr (Bytes) { _tile_dpbusd(sum, a, b); }  \
    else { _tile_dpbf16ps(sum, a, b); }

// A block of 64 outputs for up to 16 rows -> sums [16, 64]. Tile loads wait for memory one line after the other unless the
// next step is asked for in time.
template <bool Bytes>
static inline void multiply_few(const std::uint8_t* x, std::size_t x_stride, const std::uint8_t* w, int steps, float* sums) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int k = 0; k < steps; k++, x += 64, w += kStep) {
        for (int line = 0; line < kStep; line += 64) __builtin_prefetch(w + kStep + line);
        _tile_loadd(4, x, x_stride);
        _tile_loadd(6, w, kLine);
        _tile_loadd(7, w + 64, kLine);
        OD_DOT(0, 4, 6)
        OD_DOT(1, 4, 7)
        _tile_loadd(6, w + 128, kLine);
        _tile_loadd(7, w + 192, kLine);
        OD_DOT(2, 4, 6)
        OD_DOT(3, 4, 7)
    }
    _tile_stored(0, sums, kLine);
    _tile_stored(1, sums + 16, kLine);
    _tile_stored(2, sums + 32, kLine);
    _tile_stored(3, sums + 48, kLine);
}

// Some steps of 32 outputs for 32 rows, added to `sums` [32, 64], which begin at zero if `begins`. Each step also asks for
// `lines` lines of weights from `ahead` on, into the second cache.
template <bool Bytes>
static inline void multiply_tall(const std::uint8_t* x, std::size_t x_stride, const std::uint8_t* w, int steps, bool begins,
                                 float* sums, const std::uint8_t*& ahead, int lines) {
    float* below = sums + kTileRows * kBlock;
    if (begins) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    } else {
        _tile_loadd(0, sums, kLine);
        _tile_loadd(1, sums + 16, kLine);
        _tile_loadd(2, below, kLine);
        _tile_loadd(3, below + 16, kLine);
    }
    const std::uint8_t* x2 = x + kTileRows * x_stride;
    for (int k = 0; k < steps; k++, x += 64, x2 += 64, w += kStep) {
        for (int i = 0; i < lines; i++, ahead += 64) __builtin_prefetch(ahead, 0, 2);
        _tile_loadd(4, x, x_stride);
        _tile_loadd(6, w, kLine);
        OD_DOT(0, 4, 6)
        _tile_loadd(7, w + 64, kLine);
        OD_DOT(1, 4, 7)
        _tile_loadd(5, x2, x_stride);
        OD_DOT(2, 5, 6)
        OD_DOT(3, 5, 7)
    }
    _tile_stored(0, sums, kLine);
    _tile_stored(1, sums + 16, kLine);
    _tile_stored(2, below, kLine);
    _tile_stored(3, below + 16, kLine);
}
#undef OD_DOT

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

// One block for many rows, all of them a few steps at a time. `is_new`: its weights are not in a cache yet.
template <bool Bytes>
static inline void multiply_many(const std::uint8_t* x, std::size_t x_stride, const std::uint8_t* w, int steps, int rows,
                                 float* sums, bool is_new) {
    const int parts = 2 * ((rows + kTallRows - 1) / kTallRows), lines = is_new ? (kStep / 64 + parts - 1) / parts : 0;
    for (int k = 0; k < steps; k += kDeep) {
        const std::uint8_t *from = w + k * kStep, *ahead = from + 2 * kDeep * kStep;
        const int count = steps - k < kDeep ? steps - k : kDeep;
        for (int row = 0; row < rows; row += kTallRows)
            for (int half = 0; half < 2; half++)
                multiply_tall<Bytes>(x + row * x_stride + k * 64, x_stride, from + 128 * half, count, !k,
                                     sums + row * kBlock + 32 * half, ahead, lines);
    }
}

// A member's share; the operand has room for whole tiles of rows.
template <bool Bytes>
static inline void amx_product(const Matrix& m, const Operand& x, int rows, float* out, std::size_t stride, Share& share) {
    static thread_local outdraft::Buffer<float> room = outdraft::make_buffer<float>(kMostTall * kTallRows * kBlock);
    const std::size_t line = line_bytes(m), depth = std::size_t(m.num_in) * (Bytes ? 1 : 2);
    const std::uint8_t* lines = Bytes ? x.bytes : reinterpret_cast<const std::uint8_t*>(x.half);
    const int steps = int(depth / 64), most = std::max(1, std::min(kMostTall, int(kPanel / (kTallRows * depth)))) * kTallRows;
    float* sums = room.get();
    configure_tiles(rows < kTileRows ? rows : kTileRows);
    share.each(m.blocks(), [&](int block) {
        const int first = block * kBlock, width = m.num_out - first < kBlock ? m.num_out - first : kBlock;
        const std::uint8_t* w = m.data.get() + block * kBlock * depth;
        for (int row = 0; row < rows;) {
            const int count = rows - row < most ? rows - row : most;
            if (count <= kTileRows) multiply_few<Bytes>(lines + row * line, line, w, steps, sums);
            else multiply_many<Bytes>(lines + row * line, line, w, steps, count, sums, !row);
            if (Bytes) scale_bytes(m, block, x, row, count, sums);
            for (int r = 0; r < count; r++, row++) write_line(m, first, width, sums + r * kBlock, out + row * stride + first);
        }
    });
    _tile_release();
}

}  // namespace OD_ISA
#endif

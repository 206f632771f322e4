// The products of grouped.h on the matrix unit, for many rows: the same exact sums, scaled in the same order, so the same
// bits.
//
// The unit wants plain signed bytes and leaves its sums in memory, so three stages run side by side on 128 inputs each:
//
//   open (t)         take the weights apart into bytes
//   multiply (t - 1) tiles of activations times tiles of bytes -> sums
//   add (t - 2)      sums times scales -> the rows' float sums, which stay in registers
#pragma once
#if defined(__AMX_BF16__) && defined(__AMX_INT8__)
#include "amx.h"

namespace OD_ISA {

constexpr int kManyNarrow = 11, kManyWide = 4;  // from so many rows on it pays, for steps of 32 and of 128
constexpr int kSoon = 2048;  // bytes that are asked for in time: the first cache holds little besides the tiles

// R rows of one strip of 16 outputs: steps of 128 inputs if Wide, else of 32.
template <bool Nibbles, bool Wide, int R>
class StripProduct {
public:
    StripProduct(const Matrix& m, int strip, const Operand& x, int row)
        : apart_(line_bytes(m)), count_(m.num_in / kWideGroup), steps_(m.num_in / m.step), w_(m.strip(strip)), scales_(m.strip_scales(strip)),
          lines_(x.bytes + row * line_bytes(m)), line_scales_(x.scales + std::size_t(row) * steps_) {}

    void run(float* out, std::size_t stride, int rows) {
        for (int t = 0; t < count_ + 2; t++) {
            if (t < count_) open(t & 1);
            if (t > 0 && t <= count_) multiply(t - 1);
            if (t > 1) add(t - 2);
        }
        for (int r = 0; r < rows; r++) store(out + r * stride, acc_[r]);
    }

private:
    static constexpr int kSums = Wide ? 1 : 4, kLength = kWideGroup / kSums;

    void open(int buffer) {
        std::uint8_t* to = bytes_[buffer];
        for (int part = 0; part < 4; part++, to += 512) {
            for (int line = 0; line < (Nibbles ? 256 : 512); line += 64) __builtin_prefetch(w_ + kSoon + line);
            w_ = each_word<Nibbles>(w_, [&](int j, u8x64 word) {
                const u8x64 plain = Nibbles ? word - 8 : word ^ 0x80;
                std::memcpy(to + 64 * j, &plain, 64);
            });
        }
    }

    void multiply(int t) {
        const std::uint8_t *x = lines_ + t * kWideGroup, *w = bytes_[t & 1];
        std::int32_t* to = sums_[t & 1];
        _tile_zero(0);
        if constexpr (Wide) {
            _tile_loadd(4, x, apart_);
            _tile_loadd(6, w, 64);
            _tile_dpbssd(0, 4, 6);
            _tile_loadd(5, x + 64, apart_);
            _tile_loadd(7, w + 1024, 64);
            _tile_dpbssd(0, 5, 7);
            _tile_stored(0, to, 64);
            return;
        }
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
#define OD_DOT(sum, a, b)                           \
    _tile_loadd(a, x + sum * kGroup, apart_);       \
    _tile_loadd(b, w + sum * 512, 64);              \
    _tile_dpbssd(sum, a, b);
        OD_DOT(0, 4, 6)
        OD_DOT(1, 5, 7)
        OD_DOT(2, 4, 6)
        OD_DOT(3, 5, 7)
#undef OD_DOT
        _tile_stored(0, to, 64);
        _tile_stored(1, to + 256, 64);
        _tile_stored(2, to + 512, 64);
        _tile_stored(3, to + 768, 64);
    }

    void add(int t) {
        const std::int32_t* from = sums_[t & 1];
        for (int i = 0, g = t * kSums; i < kSums; i++, g++, from += 256) {
            const f32x16 scale = widen_half(scales_ + 16 * g);
#pragma GCC unroll 16
            for (int r = 0; r < R; r++)
                acc_[r] = fma(to_float(load(from + 16 * r)), scale * line_scales_[std::size_t(r) * steps_ + g], acc_[r]);
        }
    }

    const std::size_t apart_;  // bytes between two rows of activations
    const int count_, steps_;
    const std::uint8_t* w_;
    const std::uint16_t* scales_;
    const std::uint8_t* lines_;
    const float* line_scales_;
    f32x16 acc_[R] = {};
    alignas(64) std::uint8_t bytes_[2][4 * 512];
    alignas(64) std::int32_t sums_[2][kSums * 256];
};

// R rows of a block of 64 outputs, of which `rows` are wanted.
template <bool Nibbles, bool Wide, int R>
static inline void amx_strips(const Matrix& m, int block, const Operand& x, int row, int rows, float* out, std::size_t stride) {
    for (int c = 0; c < 4; c++) StripProduct<Nibbles, Wide, R>(m, 4 * block + c, x, row).run(out + 16 * c, stride, rows);
}

template <int R>
static inline void amx_tile(const Matrix& m, int block, const Operand& x, int row, int rows, float* out, std::size_t stride) {
    const bool wide = m.step == kWideGroup;
    if (m.kind == Kind::int4)
        return wide ? amx_strips<true, true, R>(m, block, x, row, rows, out, stride)
                    : amx_strips<true, false, R>(m, block, x, row, rows, out, stride);
    return wide ? amx_strips<false, true, R>(m, block, x, row, rows, out, stride)
                : amx_strips<false, false, R>(m, block, x, row, rows, out, stride);
}

// A member's share; the operand has room for whole tiles of rows.
static inline void amx_grouped(const Matrix& m, const Operand& x, int rows, float* out, std::size_t stride, Share& share) {
    const int tiles = (rows + kTileRows - 1) / kTileRows, height = (rows + tiles - 1) / tiles;
    configure_tiles(height, m.step == kWideGroup ? 64 : 32);
    each_block(m, rows, out, stride, share, [&](int block, int row, int left, float* to, std::size_t step) {
        const int wanted = left < height ? left : height;
        switch (height) {
#define OD_CASE(R) case R: amx_tile<R>(m, block, x, row, wanted, to, step); break;
            OD_CASE(16) OD_CASE(15) OD_CASE(14) OD_CASE(13) OD_CASE(12) OD_CASE(11) OD_CASE(10) OD_CASE(9) OD_CASE(8)
            OD_CASE(7) OD_CASE(6) OD_CASE(5) OD_CASE(4)
#undef OD_CASE
        }
        return wanted;
    });
    _tile_release();
}

}  // namespace OD_ISA
#endif

// Dot products of numbers that never leave the registers: no product of matrices is quicker. For measurements only.
#pragma once
#include "amx.h"
#include "linear.h"

namespace OD_ISA {

#if defined(__AMX_BF16__) && defined(__AMX_INT8__)

// Additions and multiplications that were done.
static double dot_work(bool bytes, std::int64_t turns) {
    configure_tiles(kTileRows);
    for (std::int64_t t = 0; t < turns; t++) {
        if (bytes) {
            _tile_dpbusd(0, 4, 6); _tile_dpbusd(1, 4, 7); _tile_dpbusd(2, 5, 6); _tile_dpbusd(3, 5, 7);
        } else {
            _tile_dpbf16ps(0, 4, 6); _tile_dpbf16ps(1, 4, 7); _tile_dpbf16ps(2, 5, 6); _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_release();
    return 4.0 * double(turns) * 2 * kTileRows * 16 * (bytes ? 64 : 32);
}

#elif defined(__AVX512BF16__) && defined(__AVX512VNNI__)

constexpr int kSums = 12;  // more than an instruction takes cycles

template <class Vector, class Step>
static void turn(std::int64_t turns, Step step) {
    Vector sums[kSums] = {};
    asm volatile("" : "+m"(sums));  // the compiler does not know what is in them, so each is a sum of its own
    for (std::int64_t t = 0; t < turns; t++) {
#pragma GCC unroll 12
        for (int i = 0; i < kSums; i++) sums[i] = step(sums[i]);
    }
    asm volatile("" ::"m"(sums));
}

static double dot_work(bool bytes, std::int64_t turns) {
    const u8x64 u = {};
    const i8x64 s = {};
    const bf16 w[32] = {};
    if (bytes) turn<i32x16>(turns, [&](i32x16 sum) { return dot_bytes(sum, u, s); });
    else turn<f32x16>(turns, [&](f32x16 sum) { return dot_pair(sum, w, 0); });
    return double(kSums) * double(turns) * 2 * 16 * (bytes ? 4 : 2);
}

#else

constexpr int kSums = 10;

// Where there are no such instructions: floats, and pairs of 16-bit numbers, in the registers that the tiles use.
static double dot_work(bool bytes, std::int64_t turns) {
#if defined(__AVX2__)
    typedef float floats __attribute__((vector_size(32)));
#else
    typedef float floats __attribute__((vector_size(16)));
#endif
    floats sums[kSums] = {}, x = {};
    asm volatile("" : "+m"(sums));
    asm volatile("" : "+m"(x));
    for (std::int64_t t = 0; t < turns; t++) {
#if defined(OD_NEON)
        if (bytes) {
#pragma GCC unroll 10
            for (int i = 0; i < kSums; i++)
                sums[i] = (floats)dot_four((int32x4_t)sums[i], (int8x16_t)x, (int8x16_t)x);
            continue;
        }
#pragma GCC unroll 10
        for (int i = 0; i < kSums; i++) sums[i] = (floats)vfmaq_f32((float32x4_t)sums[i], (float32x4_t)x, (float32x4_t)x);
#elif defined(__AVX2__)
        if (bytes) {
#pragma GCC unroll 10
            for (int i = 0; i < kSums; i++)
                sums[i] = (floats)_mm256_add_epi32((__m256i)sums[i], _mm256_madd_epi16((__m256i)sums[i], (__m256i)x));
            continue;
        }
#pragma GCC unroll 10
        for (int i = 0; i < kSums; i++) sums[i] = _mm256_fmadd_ps(x, x, sums[i]);
#else
#pragma GCC unroll 10
        for (int i = 0; i < kSums; i++) sums[i] += x * x;
#endif
    }
    asm volatile("" ::"m"(sums));
#if defined(OD_NEON)
    const int each = bytes ? 4 : 1;
#else
    const int each = bytes && sizeof(floats) == 32 ? 2 : 1;
#endif
    return double(kSums) * double(turns) * 2 * double(sizeof(floats) / 4) * each;
}

#endif

}  // namespace OD_ISA

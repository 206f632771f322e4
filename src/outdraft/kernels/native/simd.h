// Sixteen lanes, whatever the machine: this file is the only one that knows instruction sets.
//
// GCC and Clang lower 64-byte vectors to what the target has (AVX-512, AVX2, SSE2, NEON), so everything but the dot
// products is written once (AVX2 and NEON have tiles of their own beside it). `isa.cpp` is compiled once for each set, with OD_ISA naming the namespace.
// A result depends on the set (rounding inside a dot product), never on how many rows are computed together.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(OD_NEON)
#include <arm_neon.h>
#endif

namespace OD_ISA {

using bf16 = std::uint16_t;
typedef float f32x16 __attribute__((vector_size(64), aligned(64)));
typedef std::int32_t i32x16 __attribute__((vector_size(64), aligned(64)));
typedef std::uint32_t u32x16 __attribute__((vector_size(64), aligned(64)));
typedef std::uint16_t u16x16 __attribute__((vector_size(32)));
typedef std::int8_t i8x64 __attribute__((vector_size(64), aligned(64)));
typedef std::uint8_t u8x64 __attribute__((vector_size(64), aligned(64)));
typedef std::int8_t i8x16 __attribute__((vector_size(16)));
typedef std::uint8_t u8x16 __attribute__((vector_size(16)));

static inline f32x16 set1(float x) { return x - f32x16{}; }
static inline i32x16 set1(std::int32_t x) { return x - i32x16{}; }
static inline f32x16 load(const float* p) { f32x16 v; std::memcpy(&v, p, 64); return v; }
static inline i32x16 load(const std::int32_t* p) { i32x16 v; std::memcpy(&v, p, 64); return v; }
static inline i8x64 load_bytes(const std::uint8_t* p) { i8x64 v; std::memcpy(&v, p, 64); return v; }
static inline void store(float* p, f32x16 v) { std::memcpy(p, &v, 64); }
static inline f32x16 to_float(i32x16 v) { return __builtin_convertvector(v, f32x16); }
static inline f32x16 as_float(u32x16 v) { return (f32x16)v; }

static inline float widen(bf16 x) {
    std::uint32_t word = std::uint32_t(x) << 16;
    float out;
    std::memcpy(&out, &word, 4);
    return out;
}
static inline f32x16 widen(const bf16* p) {
    u16x16 v;
    std::memcpy(&v, p, 32);
    return as_float(__builtin_convertvector(v, u32x16) << 16);
}
// Sixteen finite float16 values: their exponent is moved by a product with a power of two, which is exact.
static inline f32x16 widen_half(const std::uint16_t* p) {
    u16x16 v;
    std::memcpy(&v, p, 32);
#if defined(__AVX512F__)
    return (f32x16)_mm512_cvtph_ps((__m256i)v);
#endif
    const u32x16 words = __builtin_convertvector(v, u32x16);
    const f32x16 size = as_float((words & 0x7fffu) << 13) * 0x1p112f;
    return as_float((u32x16)size | ((words & 0x8000u) << 16));
}
// Round to nearest even; a NaN stays a NaN.
static inline bf16 narrow(float x) {
    std::uint32_t word;
    std::memcpy(&word, &x, 4);
    if ((word & 0x7fffffffu) > 0x7f800000u) return bf16((word >> 16) | 0x40);
    return bf16((word + 0x7fff + ((word >> 16) & 1)) >> 16);
}
static inline void narrow(bf16* p, f32x16 v) {
#if defined(__AVX512BF16__)
    const __m256bh out = _mm512_cvtneps_pbh((__m512)v);  // what is below the normal numbers becomes 0
#else
    u32x16 word = (u32x16)v;
    u32x16 rounded = (word + 0x7fff + ((word >> 16) & 1)) >> 16;
    u32x16 nan = (u32x16)((word & 0x7fffffffu) > 0x7f800000u);
    rounded = (nan & ((word >> 16) | 0x40)) | (~nan & rounded);
    u16x16 out = __builtin_convertvector(rounded, u16x16);
#endif
    std::memcpy(p, &out, 32);
}
static inline f32x16 widen(const std::int8_t* p) {
    i8x16 v;
    std::memcpy(&v, p, 16);
#if defined(__AVX512F__)
    return to_float((i32x16)_mm512_cvtepi8_epi32((__m128i)v));  // GCC 12 takes the lanes one by one
#else
    return to_float(__builtin_convertvector(v, i32x16));
#endif
}
static inline void narrow(std::int8_t* p, i32x16 v) {  // within -128..127
    i8x16 out = __builtin_convertvector(v, i8x16);
    std::memcpy(p, &out, 16);
}

__attribute__((always_inline)) static inline f32x16 fma(f32x16 a, f32x16 b, f32x16 c) {
#if defined(__AVX512F__)
    return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__)
    __m256 x[2], y[2], z[2];
    std::memcpy(x, &a, 64), std::memcpy(y, &b, 64), std::memcpy(z, &c, 64);
    for (int i = 0; i < 2; i++) z[i] = _mm256_fmadd_ps(x[i], y[i], z[i]);
    std::memcpy(&c, z, 64);
    return c;
#elif defined(OD_NEON)
    float x[16], y[16], z[16];
    std::memcpy(x, &a, 64), std::memcpy(y, &b, 64), std::memcpy(z, &c, 64);
    for (int i = 0; i < 16; i += 4) vst1q_f32(z + i, vfmaq_f32(vld1q_f32(z + i), vld1q_f32(x + i), vld1q_f32(y + i)));
    std::memcpy(&c, z, 64);
    return c;
#else
    return a * b + c;  // two roundings: the compiler must not decide otherwise here and there (-ffp-contract=off)
#endif
}
// Of a number and a NaN, the second of the two: where a NaN must stay one, it stands second.
static inline f32x16 max(f32x16 a, f32x16 b) { return a > b ? a : b; }
static inline i32x16 max(i32x16 a, i32x16 b) { return a > b ? a : b; }
static inline f32x16 min(f32x16 a, f32x16 b) { return a < b ? a : b; }
// One value from sixteen, halves onto halves: a fixed order.
template <class Wide, class Join>
static inline auto fold(Wide v, Join join) {
    v = join(v, __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
    v = join(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
    v = join(v, __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
    v = join(v, __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14));
    return v[0];
}
static inline float sum(f32x16 v) { return fold(v, [](f32x16 a, f32x16 b) { return a + b; }); }
static inline std::int32_t sum(i32x16 v) { return fold(v, [](i32x16 a, i32x16 b) { return a + b; }); }
static inline float largest(f32x16 v) { return fold(v, [](f32x16 a, f32x16 b) { return max(a, b); }); }
// The largest magnitude of x [size], in steps of 16; NaN unless all are finite. Magnitudes stand in the order of their bits
// as whole numbers, with infinity and then NaN at the end.
static inline float largest_magnitude(const float* x, int size) {
    i32x16 top = {};
    for (int i = 0; i < size; i += 16) top = max(top, (i32x16)((u32x16)load(x + i) & 0x7fffffffu));
    const std::int32_t word = fold(top, [](i32x16 a, i32x16 b) { return max(a, b); });
    float out;
    std::memcpy(&out, &word, 4);
    return std::isfinite(out) ? out : NAN;
}
static inline i32x16 nearest(f32x16 v) {
#if defined(__AVX512F__)
    return (i32x16)_mm512_cvtps_epi32(v);
#else
    f32x16 magic = set1(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
    return (i32x16)(v + magic) - (i32x16)magic;
#endif
}

// e^x by 2^n times a polynomial of degree 6 (Taylor in ln 2 * f, |f| <= 1/2; relative error below 2e-7); 0 below
// -87, NaN of NaN.
static inline f32x16 exp(f32x16 x) {
    f32x16 bounded = max(set1(-87.0f), x);
    f32x16 scaled = bounded * 1.44269504088896341f;
    i32x16 n = nearest(scaled);
    f32x16 y = fma(to_float(n), set1(-0.693145751953125f), bounded);
    y = fma(to_float(n), set1(-1.42860682030941723e-6f), y);
    f32x16 p = set1(1.0f / 720);
    p = fma(p, y, set1(1.0f / 120));
    p = fma(p, y, set1(1.0f / 24));
    p = fma(p, y, set1(1.0f / 6));
    p = fma(p, y, set1(0.5f));
    p = fma(p, y, set1(1.0f));
    p = fma(p, y, set1(1.0f));
    f32x16 power = (f32x16)((n + 127) << 23);
    return x < set1(-87.0f) ? f32x16{} : p * power;
}

// acc[i] += w[2i] x0 + w[2i+1] x1, for 32 bf16 weights and one pair of activations (as a 32-bit word).
static inline f32x16 dot_pair(f32x16 acc, const bf16* w, std::uint32_t pair) {
    u32x16 words;
    std::memcpy(&words, w, 64);
#if defined(__AVX512BF16__)
    return _mm512_dpbf16_ps(acc, (__m512bh)words, (__m512bh)_mm512_set1_epi32(int(pair)));
#else
    acc = fma(as_float(words << 16), set1(widen(bf16(pair))), acc);
    return fma(as_float(words & 0xffff0000u), set1(widen(bf16(pair >> 16))), acc);
#endif
}
// acc[i] += sum over j < 4 of u[4i+j] s[4i+j]: unsigned times signed bytes.
static inline i32x16 dot_bytes(i32x16 acc, u8x64 u, i8x64 s) {
#if defined(__AVX512VNNI__)
    asm("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(u), "vm"(s));  // by the intrinsic GCC 12 moves every sum twice a step
    return acc;
#else
    i32x16 words = (i32x16)s, unsigned_words = (i32x16)u;
    for (int j = 0; j < 4; j++) {
        i32x16 a = (i32x16)((u32x16)(unsigned_words << (24 - 8 * j)) >> 24);
        i32x16 b = (words << (24 - 8 * j)) >> 24;
        acc += a * b;
    }
    return acc;
#endif
}
static inline u8x64 repeat_word(const std::uint8_t* p) {
    std::int32_t word;
    std::memcpy(&word, p, 4);
    return (u8x64)set1(word);
}

}  // namespace OD_ISA

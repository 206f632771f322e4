// Sixteen lanes, whatever the machine: this file and the tiles are what knows instruction sets.
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

// Bytes of the machine's own vectors. GCC takes comparisons of wider ones apart lane by lane, so that whatever compares is
// written for these and done `by_parts`.
#if defined(__AVX512F__)
constexpr int kNative = 64;
#elif defined(__AVX2__)
constexpr int kNative = 32;
#else
constexpr int kNative = 16;
#endif
typedef float Floats __attribute__((vector_size(kNative)));
typedef std::int32_t Ints __attribute__((vector_size(kNative)));
typedef std::uint32_t Words __attribute__((vector_size(kNative)));

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

constexpr int kLanes = kNative / 4, kParts = 16 / kLanes;  // of such a vector; of sixteen lanes
static inline Floats load_part(const float* p) { Floats v; std::memcpy(&v, p, kNative); return v; }
static inline void store_part(float* p, Floats v) { std::memcpy(p, &v, kNative); }

template <class Native> struct Sixteen;
template <> struct Sixteen<Floats> { using type = f32x16; };
template <> struct Sixteen<Ints> { using type = i32x16; };
template <> struct Sixteen<Words> { using type = u32x16; };
static inline Floats part_of(const f32x16& v, int i) { Floats p; std::memcpy(&p, (const char*)&v + i * kNative, kNative); return p; }
static inline Words part_of(const u32x16& v, int i) { Words p; std::memcpy(&p, (const char*)&v + i * kNative, kNative); return p; }
// f of as many lanes at a time as the machine's vectors have.
template <class F, class... V>
__attribute__((always_inline)) static inline auto by_parts(F f, const V&... v) {
    typename Sixteen<decltype(f(part_of(v, 0)...))>::type out;
#pragma GCC unroll 4
    for (int i = 0; i < kParts; i++) {
        const auto part = f(part_of(v, i)...);
        std::memcpy((char*)&out + i * kNative, &part, kNative);
    }
    return out;
}

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
    const u32x16 rounded = by_parts([](Words word) {
        const Words nan = (Words)((Ints)(word & 0x7fffffffu) > 0x7f800000);
        return (nan & ((word >> 16) | 0x40)) | (~nan & ((word + 0x7fff + ((word >> 16) & 1)) >> 16));
    }, (u32x16)v);
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

__attribute__((always_inline)) static inline Floats fused(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__)
    return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__) && defined(__FMA__)
    return _mm256_fmadd_ps(a, b, c);
#elif defined(OD_NEON)
    return (Floats)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;  // two roundings: the compiler must not decide otherwise here and there (-ffp-contract=off)
#endif
}
__attribute__((always_inline)) static inline f32x16 fma(f32x16 a, f32x16 b, f32x16 c) { return by_parts(fused, a, b, c); }
// Of a number and a NaN, the second of the two: where a NaN must stay one, it stands second.
constexpr auto larger = [](auto a, auto b) { return a > b ? a : b; };
constexpr auto smaller = [](auto a, auto b) { return a < b ? a : b; };
static inline f32x16 max(f32x16 a, f32x16 b) { return by_parts(larger, a, b); }
// One value from sixteen, halves onto halves: a fixed order.
template <class T, int Count, class Join>
static inline T fold(const T* x, Join join) {
    if constexpr (Count == 1) return *x;
    else {
        typedef T half __attribute__((vector_size(Count / 2 * sizeof(T))));
        half low, high;
        std::memcpy(&low, x, sizeof low), std::memcpy(&high, x + Count / 2, sizeof high);
        low = join(low, high);
        return fold<T, Count / 2>((const T*)&low, join);
    }
}
constexpr auto added = [](auto a, auto b) { return a + b; };
static inline float sum(f32x16 v) { return fold<float, 16>((const float*)&v, added); }
static inline float largest(f32x16 v) { return fold<float, 16>((const float*)&v, larger); }
// The largest magnitude of x [size], in steps of 16; NaN unless all are finite. Magnitudes stand in the order of their bits
// as whole numbers, with infinity and then NaN at the end.
static inline float largest_magnitude(const float* x, int size) {
    Ints tops[kParts] = {};
    for (int i = 0; i < size; i += 16)
        for (int p = 0; p < kParts; p++) tops[p] = larger(tops[p], (Ints)load_part(x + i + p * kLanes) & 0x7fffffff);
    const std::int32_t word = fold<std::int32_t, 16>((const std::int32_t*)tops, larger);
    float out;
    std::memcpy(&out, &word, 4);
    return std::isfinite(out) ? out : NAN;
}
static inline Ints nearest_of(Floats v) {
#if defined(__AVX512F__)
    return (Ints)_mm512_cvtps_epi32(v);
#else
    const Floats magic = Floats{} + 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
    return (Ints)(v + magic) - (Ints)magic;
#endif
}
static inline i32x16 nearest(f32x16 v) { return by_parts(nearest_of, v); }

// The lowest bytes of sixteen numbers.
static inline void put_bytes(std::uint8_t* to, const Ints* v) {
#if defined(__AVX512F__)
    const __m128i bytes = _mm512_cvtepi32_epi8((__m512i)*v);
    std::memcpy(to, &bytes, 16);
#elif defined(__AVX2__)
    const __m256i both = _mm256_packus_epi32((__m256i)(v[0] & 255), (__m256i)(v[1] & 255));
    const __m256i line = _mm256_permute4x64_epi64(both, 0xd8);
    const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(line), _mm256_extracti128_si256(line, 1));
    std::memcpy(to, &bytes, 16);
#else
    i32x16 whole;
    std::memcpy(&whole, v, sizeof whole);
    const u8x16 bytes = __builtin_convertvector(whole, u8x16);
    std::memcpy(to, &bytes, 16);
#endif
}

// e^x by 2^n times a polynomial of degree 6 (Taylor in ln 2 * f, |f| <= 1/2; relative error below 2e-7); 0 below
// -87, NaN of NaN.
static inline Floats exp_of(Floats x) {
    const Floats zero{}, lowest = zero - 87.0f, bounded = lowest > x ? lowest : x;
    const Ints n = nearest_of(bounded * 1.44269504088896341f);
    const Floats whole = __builtin_convertvector(n, Floats);
    const Floats y = fused(whole, zero - 1.42860682030941723e-6f, fused(whole, zero - 0.693145751953125f, bounded));
    Floats p = zero + 1.0f / 720;
    for (const float term : {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) p = fused(p, y, zero + term);
    return x < lowest ? zero : p * (Floats)((n + 127) << 23);
}
static inline f32x16 exp(f32x16 x) { return by_parts(exp_of, x); }

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

// The activations of some rows in the form that a matrix wants.
#pragma once
#include "packed.h"
#include "simd.h"
#include "workspace.h"

namespace OD_ISA {

using outdraft::Kind;
using outdraft::Matrix;
using outdraft::kBlock;
using outdraft::kGroup;
using outdraft::kWideGroup;

// Rows of a tile of bf16, and of bytes with a scale an output: what the registers hold.
#if defined(__AVX512F__)
constexpr int kTall = 6, kTallBytes = 6;
#elif defined(__AVX2__)
constexpr int kTall = 5, kTallBytes = 4;
#elif defined(OD_NEON)
constexpr int kTall = 4, kTallBytes = 4;
#else
constexpr int kTall = 2, kTallBytes = 2;
#endif

// Weights of bf16 want activations that are rounded to bf16. AVX2 has no product of such numbers: it keeps them as floats,
// which it repeats in all lanes without arithmetic.
#if defined(__AVX2__) && !defined(__AVX512F__)
using Half = float;
static inline void round_half(float* p, f32x16 v) {
    bf16 half[16];
    narrow(half, v);
    store(p, widen(half));
}
#else
using Half = bf16;
static inline void round_half(bf16* p, f32x16 v) { narrow(p, v); }
#endif

// Bytes from one row of activations to the next. Rows a power of two apart would share a few lines of the first cache.
constexpr int kApart = 1024;
static inline std::size_t line_bytes(const Matrix& m) {
    const std::size_t bytes = std::size_t(m.num_in) * (m.kind == Kind::bf16 ? sizeof(Half) : 1);
    return bytes % kApart ? bytes : bytes + outdraft::kFill;
}

// Activations of some rows in the form that one matrix wants; parts are [R, line] or [R, K / step].
struct Operand {
    Half* half = nullptr;            // weights of bf16
    std::uint8_t* bytes = nullptr;   // int8: x / scale + 128; int8g, int4: x / scale, signed
    float* scales = nullptr;         // int8: [R]; int8g, int4: [R, K / step]
    std::int32_t* offsets = nullptr; // int8g, int4: what the + 128 or + 8 of the stored weights adds to a group's sum, negative
                                     // blocks: minus the sums of 16 bytes [R, K / 16]; bytes and scales as int4
    float* sums = nullptr;           // blocks: of 32 inputs, as rounded [R, K / 32]
};

static inline Operand operand_in(outdraft::Workspace& space) {
    auto* bytes = reinterpret_cast<std::uint8_t*>(space.half.get());
    return {reinterpret_cast<Half*>(bytes), bytes, space.scales.get(), space.offsets.get(), space.sums.get()};
}

// Below the limit 1 / scale would be infinite; such a row counts as zeros.
static inline float byte_scale(float top) { return top < 0x1p-118f ? 1.0f : top / 127; }

// x * by + more, rounded, as sixteen bytes; returns their sum.
static inline std::int32_t round_sixteen(const float* x, float by, int more, std::uint8_t* bytes) {
    Ints whole[kParts];
#pragma GCC unroll 4
    for (int p = 0; p < kParts; p++) whole[p] = nearest_of(load_part(x + p * kLanes) * by) + more;
    put_bytes(bytes, whole);
    return fold<std::int32_t, 16>((const std::int32_t*)whole, added);
}

// Row r for block formats: 32 inputs share a scale.
static inline void prepare_groups(const float* x, int k_size, Operand& to, int r, std::size_t line) {
    std::uint8_t* bytes = to.bytes + r * line;
    for (int first = 0, g = r * (k_size / kGroup); first < k_size; first += kGroup, g++) {
        const float scale = byte_scale(largest_magnitude(x + first, kGroup));
        to.scales[g] = scale, to.offsets[2 * g] = to.offsets[2 * g + 1] = 0, to.sums[g] = scale;
        if (scale != scale) continue;
        for (int half = 0; half < 2; half++)
            to.offsets[2 * g + half] = -round_sixteen(x + first + 16 * half, 1 / scale, 0, bytes + first + 16 * half);
        to.sums[g] = scale * float(-(to.offsets[2 * g] + to.offsets[2 * g + 1]));
    }
}

// Row r of the operand from x [K].
static inline void prepare(const Matrix& m, const float* x, Operand& to, int r) {
    const Kind kind = m.kind;
    const int k_size = m.num_in;
    if (kind == Kind::bf16) {
        Half* line = to.half + r * line_bytes(m) / sizeof(Half);
        for (int k = 0; k < k_size; k += 16) round_half(line + k, load(x + k));
        return;
    }
    if (kind == Kind::blocks) return prepare_groups(x, k_size, to, r, line_bytes(m));
    const int span = kind == Kind::int8 ? k_size : m.step;
    std::uint8_t* bytes = to.bytes + r * line_bytes(m);
    for (int first = 0; first < k_size; first += span) {
        const float scale = byte_scale(largest_magnitude(x + first, span));
        const std::size_t at = kind == Kind::int8 ? std::size_t(r) : std::size_t(r) * (k_size / span) + first / span;
        to.scales[at] = scale;
        if (scale != scale) continue;  // it makes NaN of whatever the bytes are
        std::int32_t total = 0;
        for (int k = first; k < first + span; k += 16)
            total += round_sixteen(x + k, 1 / scale, kind == Kind::int8 ? 128 : 0, bytes + k);
        if (kind != Kind::int8) to.offsets[at] = -(kind == Kind::int8g ? 128 : 8) * total;
    }
}

}  // namespace OD_ISA

// What happens to one row by itself: norms, rotary positions, the activation, soft caps, the best token.
#pragma once
#include <cmath>

#include "model.h"
#include "simd.h"

namespace OD_ISA {

// out = x / rms(x) * weight, D a multiple of 16. Zhang and Sennrich 2019.
static inline void rms_norm(const float* x, const float* weight, float* out, int size, float eps) {
    f32x16 squares = {};
    for (int i = 0; i < size; i += 16) squares = fma(load(x + i), load(x + i), squares);
    const float scale = 1.0f / std::sqrt(sum(squares) / size + eps);
    for (int i = 0; i < size; i += 16) store(out + i, load(x + i) * scale * load(weight + i));
}

// out = (x - mean) / deviation * weight + bias, D a multiple of 16; weight [D] | bias [D]. Ba et al. 2016.
static inline void layer_norm(const float* x, const float* weight, float* out, int size, float eps) {
    f32x16 total = {}, squares = {};
    for (int i = 0; i < size; i += 16) total += load(x + i);
    const float mean = sum(total) / size;
    for (int i = 0; i < size; i += 16) {
        const f32x16 off = load(x + i) - mean;
        squares = fma(off, off, squares);
    }
    const float scale = 1.0f / std::sqrt(sum(squares) / size + eps);
    for (int i = 0; i < size; i += 16) store(out + i, (load(x + i) - mean) * scale * load(weight + i) + load(weight + size + i));
}

static inline void norm_row(const outdraft::Shape& shape, const float* x, const float* weight, float* out, int size) {
    if (shape.norm == outdraft::Norm::layer) layer_norm(x, weight, out, size, shape.eps);
    else rms_norm(x, weight, out, size, shape.eps);
}

// Turn the first `dim` channels of a head in place; cos and sin [dim] are the row's, the sign is in sin.
static inline void rotate(float* x, const float* cos, const float* sin, int dim) {
    const int half = dim / 2;
    for (int i = 0; i < half; i++) {
        const float a = x[i], b = x[i + half];
        x[i] = a * cos[i] + b * sin[i];
        x[i + half] = b * cos[i + half] + a * sin[i + half];
    }
}

static inline Floats silu(Floats x) { return x / (1.0f + exp_of(smaller(-x, Floats{} + 87.0f))); }
// x (1 + tanh(u)) / 2 = x / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3).
static inline Floats gelu_tanh(Floats x) {
    const Floats twice = x * fused(x * x, Floats{} + 0.0713548162726f, Floats{} + 1.59576912160573f);
    return x / (1.0f + exp_of(smaller(-twice, Floats{} + 87.0f)));
}

// gate [size] | value [size] -> f(gate) * value, in place of the gate; not gated: [size] -> f, in place.
template <class F>
static inline void activate_by(float* gate, int size, bool gated, F f) {
    const float* value = gate + size;
    for (int i = 0; i < size; i += kLanes) {
        const Floats out = f(load_part(gate + i));
        store_part(gate + i, gated ? out * load_part(value + i) : out);
    }
}
static inline void activate(const outdraft::Shape& shape, float* gate) {
    if (shape.activation == outdraft::Activation::silu) activate_by(gate, shape.inner, shape.gated, silu);
    else activate_by(gate, shape.inner, shape.gated, gelu_tanh);
}

// cap * tanh(x / cap); NaN of NaN. Gemma 2, 2024.
static inline Floats soft_cap_of(Floats x, float cap) {
    const Floats power = exp_of(smaller(Floats{} + 87.0f, x * (2.0f / cap)));
    return cap - 2.0f * cap / (power + 1.0f);
}
static inline f32x16 soft_cap(f32x16 x, float cap) { return by_parts([cap](Floats v) { return soft_cap_of(v, cap); }, x); }

// The first of the largest; -1 if there is a NaN or nothing but negative infinity. A run's largest is found first, and
// its place once, in the run where it stands.
static inline int best_token(const float* x, int size) {
    constexpr int kRun = 256;
    float high = -INFINITY;
    int begin = -1, i = 0;
    Floats bad = {};
    for (; i + kRun <= size; i += kRun) {
        Floats tops[4] = {load_part(x + i), load_part(x + i), load_part(x + i), load_part(x + i)};
        for (int j = 0; j < kRun; j += 4 * kLanes)
#pragma GCC unroll 4
            for (int u = 0; u < 4; u++) {
                const Floats v = load_part(x + i + j + u * kLanes);
                tops[u] = larger(tops[u], v);
                bad = v == v ? bad : Floats{} + 1.0f;
            }
        const Floats top = larger(larger(tops[0], tops[1]), larger(tops[2], tops[3]));
        for (int lane = 0; lane < kLanes; lane++)
            if (top[lane] > high) high = top[lane], begin = i;
    }
    bool wrong = false;
    for (int lane = 0; lane < kLanes; lane++) wrong |= bad[lane] != 0;
    for (; i < size; i++) {
        if (x[i] > high) high = x[i], begin = i;
        wrong |= x[i] != x[i];
    }
    if (wrong || begin < 0) return -1;
    while (x[begin] != high) begin++;
    return begin;
}

}  // namespace OD_ISA

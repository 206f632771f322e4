// What happens to one row by itself: norms, rotary positions, the gated activation, the best token.
#pragma once
#include <cmath>

#include "simd.h"

namespace OD_ISA {

// out = x / rms(x) * weight, D a multiple of 16. Zhang and Sennrich 2019.
static inline void rms_norm(const float* x, const float* weight, float* out, int size, float eps) {
    f32x16 squares = {};
    for (int i = 0; i < size; i += 16) squares = fma(load(x + i), load(x + i), squares);
    const float scale = 1.0f / std::sqrt(sum(squares) / size + eps);
    for (int i = 0; i < size; i += 16) store(out + i, load(x + i) * scale * load(weight + i));
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

// gate [size] | value [size] -> silu(gate) * value, in place of the gate. Shazeer 2020.
static inline void silu_gate(float* gate, int size) {
    const float* value = gate + size;
    for (int i = 0; i < size; i += 16) {
        const f32x16 g = load(gate + i);
        store(gate + i, g / (1.0f + exp(-g)) * load(value + i));
    }
}

// The first of the largest; -1 if there is a NaN or nothing but negative infinity.
static inline int best_token(const float* x, int size) {
    f32x16 top = set1(-INFINITY), at = set1(-1.0f), bad = {};  // at: where each lane met its largest first
    int i = 0;
    for (; i + 16 <= size; i += 16) {
        const f32x16 v = load(x + i);
        at = v > top ? set1(float(i)) : at;
        top = max(top, v);
        bad = v == v ? bad : set1(1.0f);
    }
    float tops[16], firsts[16], high = -INFINITY;
    std::memcpy(tops, &top, sizeof tops), std::memcpy(firsts, &at, sizeof firsts);
    int best = -1;
    for (int lane = 0; lane < 16; lane++) {
        const int place = int(firsts[lane]) + lane;
        if (tops[lane] > high || (tops[lane] == high && best >= 0 && place < best)) high = tops[lane], best = place;
    }
    bool wrong = largest(bad) > 0;
    for (; i < size; i++) {
        if (x[i] > high) high = x[i], best = i;
        wrong |= x[i] != x[i];
    }
    return wrong ? -1 : best;
}

}  // namespace OD_ISA

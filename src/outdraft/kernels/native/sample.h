// A token from a row of logits: the best one, the best few, or a draw from the warped distribution.
//
// Distributions and noise are those of sampling/warp.py and sampling/noise.py. A draw is an exponential race (sampling/coins.py):
// token i finishes at -log(u_i) / distribution_i, where u_i depends on the key and on i alone.
#pragma once
#include "guesser.h"
#include "rows.h"

namespace OD_ISA {

using outdraft::Distribution;
using outdraft::truncate;

// The best token; -1 unless its logit is finite.
static inline int choose_best(const float* x, int size) {
    const int best = best_token(x, size);
    return best >= 0 && std::isfinite(x[best]) ? best : -1;
}

// The sum of e^((x - top) * inverse), in one order; each term is left in `terms` [size], unless that is null.
static inline float exp_sum(const float* x, int size, float top, float inverse = 1.0f, float* terms = nullptr) {
    Floats totals[kParts] = {};
    const auto sixteen = [&](const float* from, float* to) {
#pragma GCC unroll 4
        for (int p = 0; p < kParts; p++) {
            const Floats e = exp_of((load_part(from + p * kLanes) - top) * inverse);
            totals[p] += e;
            if (to) store_part(to + p * kLanes, e);
        }
    };
    int i = 0;
    for (; i + 16 <= size; i += 16) sixteen(x + i, terms ? terms + i : nullptr);
    if (i < size) {
        float line[16], last[16];
        for (int j = 0; j < 16; j++) line[j] = i + j < size ? x[i + j] : -INFINITY;
        sixteen(line, last);
        if (terms) std::memcpy(terms + i, last, sizeof(float) * (size - i));
    }
    return fold<float, 16>((const float*)totals, added);
}

// distribution = softmax(x / temperature).
static inline void softmax(const float* x, float* distribution, int size, float top, float temperature) {
    const float share = 1.0f / exp_sum(x, size, top, 1.0f / temperature, distribution);
    for (int i = 0; i < size; i++) distribution[i] *= share;
}

// The first `count` to finish the race, in order; fewer if fewer have any mass. Returns how many. `times` [count] is scratch.
// Since -log(u) >= 1 - u, most logarithms need not be taken.
static inline int race(const float* distribution, int size, std::uint64_t key, int count, std::int32_t* winners, double* times) {
    int held = 0;
    double last = INFINITY;  // the time of the last of those held, once there are enough
    for (int first = 0; first < size; first += 64) {
        const int stop = size - first < 64 ? size - first : 64;
        int open = stop < 64;
        if (!open)
            for (int i = 0; i < 64; i++) open |= distribution[first + i] > 0;
        if (!open) continue;
        double noise[64];
        for (int i = 0; i < 64; i++) {
            std::uint64_t word = std::uint64_t(first + i + 1) * 0x9E3779B97F4A7C15u + key;
            word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9u;
            word = (word ^ (word >> 27)) * 0x94D049BB133111EBu;
            noise[i] = (double((word ^ (word >> 31)) >> 11) + 0.5) * 0x1p-53;
        }
        if (held == count && stop == 64) {
            open = 0;
            for (int i = 0; i < 64; i++) open |= (1 - noise[i]) * (1 - 1e-9) < last * distribution[first + i];
            if (!open) continue;  // none of these can be among the first
        }
        for (int i = 0; i < stop; i++) {
            const double mass = distribution[first + i];
            if (!(mass > 0) || (1 - noise[i]) * (1 - 1e-9) >= last * mass) continue;
            const double time = -std::log(noise[i]) / mass;
            if (!(time < last)) continue;
            int at = held < count ? held++ : count - 1;
            for (; at > 0 && times[at - 1] > time; at--) times[at] = times[at - 1], winners[at] = winners[at - 1];
            times[at] = time, winners[at] = first + i;
            if (held == count) last = times[count - 1];
        }
    }
    return held;
}

// distribution = what `how` makes of the logits x; false: they are not finite.
static inline bool warp(const float* x, float* distribution, int size, const Distribution& how) {
    const int best = choose_best(x, size);
    if (best < 0) return false;
    softmax(x, distribution, size, x[best], how.temperature);
    if (how.min_p > 0 || how.top_k > 0 || how.top_p < 1) truncate(distribution, size, how);
    return true;
}

// The token that `how` and `key` choose; the distribution that it was drawn from is left in `distribution` [size]. -1: no finite logits.
static inline int draw(const float* x, float* distribution, int size, const Distribution& how, std::uint64_t key) {
    std::int32_t token;
    double time;
    return warp(x, distribution, size, how) && race(distribution, size, key, 1, &token, &time) ? token : -1;
}

// Whether an entry is NaN or infinite, or the sum of all is.
static inline bool is_wild(const float* x, int size) {
    f32x16 total = {};
    int i = 0;
    for (; i + 16 <= size; i += 16) total += load(x + i);
    float rest = sum(total);
    for (; i < size; i++) rest += x[i];
    return !std::isfinite(rest);
}

// The raw probability of the best token.
static inline float probability(const float* x, int size, int best) { return 1.0f / exp_sum(x, size, x[best]); }

// The `count` best tokens in order, of equal ones the first, with their log probabilities where they are wanted; false:
// no finite logits, or not so many.
static inline bool top_tokens(const float* x, int size, int count, std::int32_t* tokens, float* log_probs) {
    const int best = choose_best(x, size);
    if (best < 0 || count < 1 || count > size) return false;
    int held = 0;
    float edge = -INFINITY;  // the least of those held, once there are enough
    for (int first = 0; first < size; first += 64) {
        const int stop = size - first < 64 ? size : first + 64;
        if (held == count && stop - first == 64) {  // most blocks hold nothing better
            const f32x16 low = max(load(x + first), load(x + first + 16));
            if (largest(max(low, max(load(x + first + 32), load(x + first + 48)))) <= edge) continue;
        }
        for (int i = first; i < stop; i++) {
            if (held == count && !(x[i] > edge)) continue;
            int at = held < count ? held++ : count - 1;
            for (; at > 0 && x[tokens[at - 1]] < x[i]; at--) tokens[at] = tokens[at - 1];
            tokens[at] = i;
            if (held == count) edge = x[tokens[count - 1]];
        }
    }
    if (log_probs == nullptr) return true;
    const float whole = x[best] + std::log(exp_sum(x, size, x[best]));
    for (int i = 0; i < count; i++) log_probs[i] = x[tokens[i]] - whole;
    return true;
}

}  // namespace OD_ISA

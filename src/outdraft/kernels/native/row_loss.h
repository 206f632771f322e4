// The loss between two rows of logits with its gradient, while both lie in the nearest caches.
//
//     P, Q      softmax of the target's logits p and of the draft's q [V]
//     a         sum of min(P, Q), what would be accepted       s   sum of Q where Q < P; an equal one counts half
//
//                                                     gradient of q
//     KL        sum P (log P - log Q)                 Q - P
//     CE        -sum P log Q                          the same
//     TV        1 - a                                 Q (s - [Q < P])
//     LK        -log a                                the same / a
//     hybrid    w KL + (1 - w) TV, w = e^(-3 a)       as if w were a constant
//     text      -log Q_x                              Q - [i = x]; nothing where x < 0
//
// Sources, and the same by PyTorch: learn/losses.py.
#pragma once
#include <vector>

#include "losses.h"
#include "sample.h"

namespace OD_ISA {

using outdraft::RowLosses;

static inline float total(Floats v) { return fold<float, kLanes>((const float*)&v, added); }

// size numbers from place `at` on.
static inline void read_row(const void* from, bool is_narrow, std::size_t at, int size, float* to) {
    if (!is_narrow) return void(std::memcpy(to, static_cast<const float*>(from) + at, sizeof(float) * size));
    for (int i = 0; i < size; i++) to[i] = widen(static_cast<const bf16*>(from)[at + i]);
}

// A NaN may be passed over: the sum of exponentials has it.
static inline float highest(const float* x, int size) {
    const Floats none = Floats{} - INFINITY;
    Floats tops[4] = {none, none, none, none};
    int i = 0;
    for (; i + 4 * kLanes <= size; i += 4 * kLanes)
        for (int j = 0; j < 4; j++) tops[j] = larger(load_part(x + i + j * kLanes), tops[j]);
    const Floats both = larger(larger(tops[0], tops[1]), larger(tops[2], tops[3]));
    float top = fold<float, kLanes>((const float*)&both, larger);
    for (; i < size; i++) top = x[i] > top ? x[i] : top;
    return top;
}

// The normaliser of a row, log sum e^x. terms * share becomes the softmax; x and terms are padded with zeros to whole vectors.
static inline float soften(float* x, int size, int padded, float* terms, float* share) {
    for (int i = size; i < padded; i++) x[i] = terms[i] = 0.0f;
    const float top = highest(x, size), sum = exp_sum(x, size, top, 1.0f, terms);
    *share = 1.0f / sum;
    return top + std::log(sum);
}

// Row r. False: nothing at all would be accepted, and the loss asks for that one's logarithm.
static inline bool row_loss(const RowLosses& in, int r, float* space) {
    const int size = in.size, padded = (size + 15) / 16 * 16;
    float *p = space, *q = p + padded, *P = q + padded, *Q = P + padded;
    const std::size_t at = std::size_t(r) * size;
    std::memcpy(p, in.p + in.at[r] * size, sizeof(float) * size);
    read_row(in.q, in.is_narrow, at, size, q);
    float of_terms, of_own;
    const float of_p = soften(p, size, padded, P, &of_terms), of_q = soften(q, size, padded, Q, &of_own);
    const Floats zero{}, apart = zero + (of_q - of_p), share = zero + std::exp(of_p - in.whole[in.at[r]]), half = zero + 0.5f;
    const Floats share_p = zero + of_terms, share_q = zero + of_own, all_q = zero + of_q;
    Floats kl{}, cross{}, common{}, below{}, mass{};
    for (int i = 0; i < padded; i += kLanes) {
        const Floats u = load_part(P + i) * share_p, v = load_part(Q + i) * share_q, logit = load_part(q + i);
        kl += u * (load_part(p + i) - logit + apart);
        cross += u * (all_q - logit);
        common += u < v ? u : v;
        below += (v < u ? v : zero) + (v == u ? v * half : zero);
        mass += u * share < v ? u * share : v;
    }
    const float a = total(common), w = std::exp(-3 * a), s = total(below);
    const bool said = std::uint64_t(in.said[r]) < std::uint64_t(size) && in.text != 0;
    if (in.log_accepted != 0 && a < 1e-30f) return false;
    const float of_text = said ? of_q - q[in.said[r]] : 0.0f;
    in.mass[r] = total(mass);
    // What has no weight may be no number: a logit of minus infinity has no logarithm.
    const auto share_of = [](float weight, float loss) { return weight != 0 ? weight * loss : 0.0f; };
    in.losses[r] = share_of(in.kl + in.hybrid * w, total(kl)) + share_of(in.cross, total(cross)) + in.text * of_text +
                   (in.tv + in.hybrid * (1 - w)) * (1 - a) - share_of(in.log_accepted, std::log(a));
    if (!in.gradient) return true;
    const float on_p = in.kl + in.cross + in.hybrid * w, heavy = in.heavy[r];
    const float on_a = in.tv + in.hybrid * (1 - w) + (in.log_accepted != 0 ? in.log_accepted / a : 0.0f);
    const Floats minus_p = zero - heavy * on_p, on_q = zero + heavy * (on_p + on_a * s + (said ? in.text : 0.0f));
    const Floats minus_below = zero - heavy * on_a;
    for (int i = 0; i < padded; i += kLanes) {
        const Floats u = load_part(P + i) * share_p, v = load_part(Q + i) * share_q;
        const Floats under = (v < u ? v : zero) + (v == u ? v * half : zero);
        store_part(Q + i, v * on_q + u * minus_p + under * minus_below);
    }
    if (said) Q[in.said[r]] -= heavy * in.text;
    if (!in.is_narrow) return std::memcpy(static_cast<float*>(in.gradient) + at, Q, sizeof(float) * size), true;
    bf16* out = static_cast<bf16*>(in.gradient) + at;
    for (int i = 0; i + 16 <= size; i += 16) narrow(out + i, load(Q + i));
    for (int i = size / 16 * 16; i < size; i++) out[i] = narrow(Q[i]);
    return true;
}

// log sum e^x of each row [rows, size].
static void log_sums(Team& team, const void* x, bool is_narrow, int rows, int size, float* out) {
    team.run([&](int id) {
        std::vector<float> row(size);
        for (int r = id; r < rows; r += team.size()) {
            read_row(x, is_narrow, std::size_t(r) * size, size, row.data());
            const float top = highest(row.data(), size);
            out[r] = top + std::log(exp_sum(row.data(), size, top));
        }
    });
}

static bool row_losses(Team& team, const RowLosses& in) {
    std::atomic<bool> sound{true};
    team.run([&](int id) {
        std::vector<float> space(4 * std::size_t((in.size + 15) / 16 * 16));
        for (int r = id; r < in.rows && sound; r += team.size())
            if (!row_loss(in, r, space.data())) sound = false;
    });
    return sound;
}

}  // namespace OD_ISA

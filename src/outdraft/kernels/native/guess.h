// Passes from tokens to logits, and chains of guesses: see guesser.h for the picture. Rows never meet but in attention,
// so a row's bits do not depend on the rows beside it, and a chain in one call is the chain step by step.
#pragma once
#include "forward.h"
#include "sample.h"

#include <vector>

namespace OD_ISA {

using outdraft::Entrance;
using outdraft::Feed;
using outdraft::GuessChain;
using outdraft::Guesser;
using outdraft::GuessSpace;
using outdraft::Origin;
using outdraft::Residual;
using outdraft::make_buffer;

static inline float* line(const outdraft::Buffer<float>& of, int row, std::size_t size) { return of.get() + row * size; }

static inline void make_room(Guesser& g, int rows, int scored) {
    GuessSpace& space = g.space;
    rows = rows > scored ? rows : scored;  // a row may be wanted twice
    const std::size_t size = g.body->shape.hidden, n = rows;
    int widest = int(size);
    const auto widen_to = [&](int wanted) { widest = wanted > widest ? wanted : widest; };
    if (g.entrance) widen_to(2 * int(size)), widen_to(g.entrance->taps * g.entrance->tap_width);
    if (g.exit) widen_to(g.exit->up.num_out);
    if (rows > space.rows) {
        space.hidden = make_buffer<float>(n * size);
        if (g.entrance || g.exit) {
            space.features = make_buffer<float>(n * size);
            space.wide = make_buffer<float>(n * widest);
            space.products.reserve(Shape{widest, 0, 0, 0, 0, 0, 0, 0, 0}, rows);
        }
        space.rows = rows;
    }
    if (scored > space.scored) {
        space.states = make_buffer<float>(scored * size);
        space.fine = make_buffer<float>(scored * size);
        if (g.ids) space.own_logits = make_buffer<float>(scored * std::size_t(g.head->shape.vocab));
        space.tokens = make_buffer<std::int32_t>(scored);
        space.positions = make_buffer<std::int32_t>(scored);
        space.scored = scored;
    }
    if (!space.layers) {
        space.layers = make_buffer<std::int32_t>(g.num_layers);
        for (int i = 0; i < g.num_layers; i++) space.layers[i] = i;
    }
}

// x through a norm, if there is one.
static inline void norm_or_copy(const float* x, const float* weight, float* out, int size, float eps) {
    if (weight) rms_norm(x, weight, out, size, eps);
    else std::memcpy(out, x, sizeof(float) * size);
}

// features [rows, hidden] of the taps.
static inline void fuse(Guesser& g, const Feed& feed) {
    GuessSpace& space = g.space;
    const Entrance& in = *g.entrance;
    const int width = in.tap_width, all = in.taps * width;
    float* to = in.fusion.num_out ? space.wide.get() : space.features.get();
    for (int r = 0; r < feed.rows; r++) {
        float* row = to + std::size_t(r) * all;
        for (int t = 0; t < in.taps; t++) {
            const float* norm = in.tap_norms && !in.one_tap_norm ? line(in.tap_norms, t, width) : nullptr;
            norm_or_copy(feed.taps[t] + std::size_t(r) * width, norm, row + t * width, width, in.tap_eps);
        }
        if (in.one_tap_norm) rms_norm(row, in.tap_norms.get(), row, all, in.tap_eps);
    }
    if (in.fusion.num_out) multiply(*g.body->team, space.products, in.fusion, to, feed.rows, space.features.get());
}

// hidden [rows, hidden] = what the layers start from. Returns what the first of them reads in its place, or null.
static inline const float* enter(Guesser& g, const Feed& feed) {
    GuessSpace& space = g.space;
    const int size = g.body->shape.hidden;
    for (int r = 0; r < feed.rows; r++) {
        const std::size_t token = feed.tokens[r] < 0 ? 0 : feed.tokens[r];
        float* to = line(space.hidden, r, size);
        if (g.embedding)
            for (int i = 0; i < size; i += 16) store(to + i, widen(g.embedding + token * size + i));
        else if (g.tied) outdraft::read_row(g.tied->head.qkv, int(token), to);
        else outdraft::read_row(g.table, int(token), size, to);
        for (int i = 0; i < size; i += 16) store(to + i, load(to + i) * g.embedding_scale);
    }
    if (!g.entrance) return nullptr;
    const Entrance& in = *g.entrance;
    const float* features = space.features.get();
    if (!feed.features) fuse(g, feed);
    else if (!in.norms_carried) features = feed.features;
    else
        for (int r = 0; r < feed.rows; r++)
            rms_norm(feed.features + std::size_t(r) * size, g.norm.get(), line(space.features, r, size), size, g.eps);
    for (int r = 0; r < feed.rows; r++) {
        float* both = line(space.wide, r, 2 * size);
        norm_or_copy(line(space.hidden, r, size), in.token_norm.get(), both, size, g.eps);
        norm_or_copy(features + std::size_t(r) * size, in.feature_norm.get(), both + size, size, g.eps);
    }
    if (in.join.num_out) multiply(*g.body->team, space.products, in.join, space.wide.get(), feed.rows, space.hidden.get());
    else std::memset(space.hidden.get(), 0, sizeof(float) * feed.rows * size);
    for (int r = 0; r < feed.rows && in.origin != Origin::zero; r++) {
        const bool normed = in.origin == Origin::normed_feature;
        const float* from = normed ? line(space.wide, r, 2 * size) + size : features + std::size_t(r) * size;
        float* to = line(space.hidden, r, size);
        for (int i = 0; i < size; i += 16) store(to + i, load(to + i) + load(from + i));
    }
    return in.join.num_out ? nullptr : space.wide.get();
}

// hidden [rows, hidden] = the states after the layers.
static inline void advance(Guesser& g, const Feed& feed) {
    const float* beside = enter(g, feed);
    run(*g.body, Pass{g.space.hidden.get(), feed.positions, feed.cos, feed.sin, feed.table, feed.rows, feed.spans, feed.num_spans,
                      g.space.layers.get(), g.num_layers, feed.kept, nullptr, nullptr, feed.skipped, beside});
}

// own [rows, head's vocab] -> out [rows, ids]: negative infinity for what the head does not know.
static inline void spread(const Guesser& g, const float* own, int rows, float* out) {
    const int known = g.head->shape.vocab;
    g.body->team->run([&](int id) {
        for (int r = id; r < rows; r += g.body->team->size()) {
            float* row = out + std::size_t(r) * g.num_ids;
            std::fill(row, row + g.num_ids, -INFINITY);
            for (int i = 0; i < known; i++)
                if (g.ids[i] >= 0) row[g.ids[i]] = own[std::size_t(r) * known + i];
        }
    });
}

// states [rows, hidden] -> logits [rows, ids]; null: only `own_logits` [rows, head's vocab], of a guesser with ids.
static inline void score(Guesser& g, const float* states, int rows, float* out) {
    GuessSpace& space = g.space;
    const int size = g.body->shape.hidden;
    const auto norm_states = [&](const float* weight) {
        for (int r = 0; r < rows; r++) rms_norm(states + std::size_t(r) * size, weight, line(space.fine, r, size), size, g.eps);
    };
    if (g.exit) {
        const Residual& change = *g.exit;
        const int inner = change.up.num_out;
        norm_states(change.norm.get());
        multiply(*g.body->team, space.products, change.up, space.fine.get(), rows, space.wide.get());
        activate_by(space.wide.get(), rows * inner, false, silu);
        multiply(*g.body->team, space.products, change.down, space.wide.get(), rows, space.fine.get());
        for (std::size_t i = 0; i < std::size_t(rows) * size; i += 16)
            store(space.fine.get() + i, load(space.fine.get() + i) + load(states + i));
        states = space.fine.get();
    }
    if (g.norm) {
        norm_states(g.norm.get());
        states = space.fine.get();
    }
    float* to = g.ids ? space.own_logits.get() : out;
    logits(*g.head, states, rows, !g.norm && !g.bare_head, to);
    if (g.ids && out) spread(g, to, rows, out);
}

static void feed(Guesser& g, const Feed& from) {
    const std::size_t size = g.body->shape.hidden;
    make_room(g, from.rows, from.num_wanted);
    advance(g, from);
    for (int i = 0; i < from.num_wanted; i++)
        std::memcpy(line(g.space.states, i, size), line(g.space.hidden, from.wanted[i], size), sizeof(float) * size);
    if (from.states) std::memcpy(from.states, g.space.states.get(), sizeof(float) * size * from.num_wanted);
    if (from.logits) score(g, g.space.states.get(), from.num_wanted, from.logits);
}

static void guess(Guesser& g, const Feed& from, const GuessChain& chain) {
    const std::size_t size = g.body->shape.hidden;
    const int n = from.num_spans, vocab = g.num_ids;
    make_room(g, from.rows, n);
    if (n > g.space.chains) g.space.logits = make_buffer<float>(n * std::size_t(vocab)), g.space.chains = n;
    std::int32_t *tokens = g.space.tokens.get(), *positions = g.space.positions.get();
    Feed next = from;
    next.tokens = tokens, next.positions = positions, next.features = g.space.states.get(), next.kept = nullptr;
    advance(g, from);
    for (int s = 0; s < n; s++) {
        Span& span = from.spans[s];
        const std::int64_t last = span.stop - 1, rows = span.stop - span.start;
        std::memcpy(line(g.space.states, s, size), line(g.space.hidden, int(last), size), sizeof(float) * size);
        positions[s] = from.positions[last] + 1;
        span.base += rows, span.first += rows, span.start = s, span.stop = s + 1;
    }
    const auto deeper = [&](int steps) {  // how many spans want more tokens than that
        int count = 0;
        while (count < n && chain.depths[count] > steps) count++;
        return count;
    };
    int open = deeper(0), live = n;  // spans that want a token; that have a new state
    std::vector<float> survival(chain.cutoffs ? n : 0, 1.0f);
    std::vector<char> unsure(chain.cutoffs ? n : 0);
    bool drawn = false;
    for (int s = 0; s < n; s++) drawn |= chain.distributions[s].temperature > 0 && chain.q[s];
    const bool own = g.ids && g.own_order && !drawn;  // the head's outputs tell all: they need not be spread
    const int width = own ? g.head->shape.vocab : vocab;
    *chain.made = 0;
    for (int step = 0;; step++) {
        for (int s = 0; s < live && chain.states; s++)
            std::memcpy(chain.states + (std::size_t(s) * chain.stride + step) * size, line(g.space.states, s, size),
                        sizeof(float) * size);
        if (!open) break;
        *chain.made = step + 1;
        score(g, g.space.states.get(), open, own ? nullptr : g.space.logits.get());
        g.body->team->run([&](int id) {
            for (int s = id; s < open; s += g.body->team->size()) {
                const std::size_t at = std::size_t(s) * chain.stride + step;
                const float* row = line(own ? g.space.own_logits : g.space.logits, s, width);
                const Distribution& distribution = chain.distributions[s];
                float* q = distribution.temperature > 0 && chain.q[s] ? chain.q[s] + std::size_t(step) * vocab : nullptr;
                int token = q ? draw(row, q, vocab, distribution, chain.keys[at]) : choose_best(row, width);
                if (step && tokens[s] < 0) token = -1;
                const float sure = !chain.cutoffs || token < 0 ? 0.0f : q ? q[token] : probability(row, width, token);
                tokens[s] = chain.tokens[at] = own && token >= 0 ? g.ids[token] : token;
                if (!chain.cutoffs) continue;
                chain.sure[at] = sure, survival[s] *= sure;
                if (sure < chain.cutoffs[2 * s] || survival[s] < chain.cutoffs[2 * s + 1]) unsure[s] = 1;
            }
        });
        const int fed = open;
        open = deeper(step + 1);
        if (chain.cutoffs && std::all_of(unsure.begin(), unsure.begin() + open, [](char c) { return c; })) open = 0;
        live = chain.feed_last ? fed : open;
        if (!live) break;
        next.rows = next.num_spans = live;
        advance(g, next);
        for (int s = 0; s < live; s++) {
            std::memcpy(line(g.space.states, s, size), line(g.space.hidden, s, size), sizeof(float) * size);
            positions[s]++, from.spans[s].base++, from.spans[s].first++;
        }
    }
}

// Row by row: the best token of each and, unless `distribution` is null, its one-hot distribution; or the `count` best.
static void best_rows(const float* x, int rows, int size, std::int32_t* out, float* distribution) {
    if (distribution) std::memset(distribution, 0, sizeof(float) * rows * size);
    for (int r = 0; r < rows; r++) {
        out[r] = choose_best(x + std::size_t(r) * size, size);
        if (distribution && out[r] >= 0) distribution[std::size_t(r) * size + out[r]] = 1;
    }
}

static bool warp_rows(const float* x, int rows, int size, const Distribution& how, float* distribution) {
    for (int r = 0; r < rows; r++)
        if (!warp(x + std::size_t(r) * size, distribution + std::size_t(r) * size, size, how)) return false;
    return true;
}

static int race_alone(const float* distribution, int size, std::uint64_t key, int count, std::int32_t* winners) {
    if (count < 1 || is_wild(distribution, size)) return 0;
    std::vector<double> times(count);
    return race(distribution, size, key, count, winners, times.data());
}

static bool top_rows(const float* x, int rows, int size, int count, std::int32_t* tokens, float* log_probs) {
    for (int r = 0; r < rows; r++) {
        float* logs = log_probs == nullptr ? nullptr : log_probs + r * count;
        if (!top_tokens(x + std::size_t(r) * size, size, count, tokens + r * count, logs)) return false;
    }
    return true;
}

}  // namespace OD_ISA

// The C interface of drafters' passes and chains (guesser.h) and of choosing tokens (sample.h).
#include <algorithm>

#include "api.h"
#include "guesser.h"

using namespace outdraft;

namespace {

// With the models' workspaces to itself; body and head may be one model. `scores`: whether logits are computed.
template <class Work>
Guesser* alone(Guesser* guesser, bool scores, Work work) {
    return guarded([&] {
        std::unique_lock<std::mutex> body(guesser->body->one_pass, std::defer_lock);
        std::unique_lock<std::mutex> head(guesser->head->one_pass, std::defer_lock);
        if (guesser->body == guesser->head) body.lock();
        else std::lock(body, head);
        for (int i = 0; i < guesser->num_layers; i++) require_weights(guesser->body->layers[i], "of a layer");
        if (scores) require_weights(guesser->head->head, "of the head");
        const int reads = guesser->entrance && !guesser->entrance->join.num_out ? 2 : 1;
        if (guesser->num_layers && guesser->body->layers[0].qkv.num_in != reads * guesser->body->shape.hidden)
            throw std::runtime_error("the first layer reads another number of states than the entrance makes");
        work(*guesser->body->kernels);
        return guesser;
    });
}

}  // namespace

extern "C" {

// The models and the embedding must outlive it; `norm` may be null: then the head's own, or with `bare_head` none.
OD_API Guesser* od_guesser_new(Model* body, Model* head, int num_layers, const std::uint16_t* embedding, float embedding_scale,
                               const float* norm, float eps, int bare_head) {
    return guarded([&] {
        if (num_layers < 0 || num_layers > int(body->layers.size()) || body->shape.hidden != head->shape.hidden)
            throw std::runtime_error("body and head do not fit: layers that are not there, or another width");
        auto guesser = std::make_unique<Guesser>();
        guesser->body = body, guesser->head = head, guesser->num_layers = num_layers;
        guesser->embedding = embedding, guesser->embedding_scale = embedding_scale, guesser->eps = eps;
        guesser->norm = copy(norm, body->shape.hidden), guesser->bare_head = bare_head != 0;
        guesser->num_ids = head->shape.vocab;
        return guesser.release();
    });
}

// In place of an embedding of bf16: rows of blocks, or a model whose head is tied to them. They must outlive it.
OD_API Guesser* od_guesser_set_table(Guesser* guesser, const od_blocks* table, const Model* tied) {
    return guarded([&] {
        if (tied) {
            require_weights(tied->head, "of the head");
            if (tied->shape.hidden != guesser->body->shape.hidden) throw std::runtime_error("a tied head of another width");
            guesser->embedding = nullptr, guesser->tied = tied;
            return guesser;
        }
        if (table->type < 0 || table->type >= kBlockTypes || guesser->body->shape.hidden % format_of(Block(table->type)).span)
            throw std::runtime_error("an embedding's rows do not divide into blocks of a format that is known");
        guesser->embedding = nullptr, guesser->table = *table;
        return guesser;
    });
}

OD_API void od_guesser_free(Guesser* guesser) { delete guesser; }

OD_API Guesser* od_guesser_set_entrance(Guesser* guesser, const od_entrance* from) {
    return guarded([&] {
        const int size = guesser->body->shape.hidden, all = from->taps * from->tap_width;
        if (from->tap_width % 16) throw std::runtime_error("taps have a width in steps of 16");
        if (!from->fusion.num_out && all != size) throw std::runtime_error("several taps, or of another width, need a fusion");
        if (from->norms_carried && !guesser->norm) throw std::runtime_error("a carried state is normed by a norm that is not there");
        auto entrance = std::make_unique<Entrance>();
        entrance->taps = from->taps, entrance->tap_width = from->tap_width;
        if (from->fusion.num_out) entrance->fusion = pack(from->fusion, {size, all});
        if (from->join.num_out) entrance->join = pack(from->join, {size, 2 * size});
        entrance->tap_norms = copy(from->tap_norms, all), entrance->tap_eps = from->tap_eps;
        entrance->one_tap_norm = from->one_tap_norm && from->tap_norms;
        entrance->token_norm = copy(from->token_norm, size), entrance->feature_norm = copy(from->feature_norm, size);
        entrance->origin = Origin(from->origin), entrance->norms_carried = from->norms_carried != 0;
        guesser->entrance = std::move(entrance);
        return guesser;
    });
}

// Output i of the head is token ids[i] of `num_ids`, each id once; -1: it is no token.
OD_API Guesser* od_guesser_set_ids(Guesser* guesser, const std::int32_t* ids, int count, int num_ids) {
    return guarded([&] {
        if (count != guesser->head->shape.vocab) throw std::runtime_error("not an id for each output of the head");
        for (int i = 0; i < count; i++)
            if (ids[i] < -1 || ids[i] >= num_ids) throw std::runtime_error("an id that is not one of the vocabulary");
        guesser->ids = make_buffer<std::int32_t>(count), guesser->num_ids = num_ids;
        std::memcpy(guesser->ids.get(), ids, sizeof(std::int32_t) * count);
        guesser->own_order = ids[0] >= 0 && std::is_sorted(ids, ids + count);
        return guesser;
    });
}

// Matrices: up, down.
OD_API Guesser* od_guesser_set_exit(Guesser* guesser, const od_linear* matrices, const float* norm) {
    return guarded([&] {
        const int size = guesser->body->shape.hidden, inner = matrices[0].num_out;
        auto residual = std::make_unique<Residual>();
        residual->up = pack(matrices[0], {inner, size}), residual->down = pack(matrices[1], {size, inner});
        residual->norm = copy(norm, size);
        guesser->exit = std::move(residual);
        return guesser;
    });
}

OD_API Guesser* od_guesser_feed(Guesser* guesser, const Feed* feed) {
    return alone(guesser, feed->logits, [&](const Kernels& kernels) {
        Paced paced(*guesser->body, Paced::feed, feed->rows, 1, guesser->head);
        kernels.feed(*guesser, *feed);
    });
}

OD_API Guesser* od_guesser_chain(Guesser* guesser, const Feed* feed, const GuessChain* chain) {
    return alone(guesser, true, [&](const Kernels& kernels) {
        Paced paced(*guesser->body, Paced::chain, feed->rows, 1, guesser->head);
        kernels.guess(*guesser, *feed, *chain);
        paced.count(*chain->made);
    });
}

// Returns null on failure.
OD_API std::int32_t* od_best_tokens(const float* x, int rows, int size, std::int32_t* out, float* distribution,
                                    const char* kernels) {
    return guarded([&] { return chosen(kernels).best_tokens(x, rows, size, out, distribution), out; });
}

// Null as well where logits are not finite; then nothing is said of why.
OD_API std::int32_t* od_top_tokens(const float* x, int rows, int size, int count, std::int32_t* tokens, float* log_probs,
                                   const char* kernels) {
    return guarded([&] {
        return chosen(kernels).top_tokens(x, rows, size, count, tokens, log_probs) ? tokens : nullptr;
    });
}

// The warped distribution of each row. Null where logits are not finite; then nothing is said of why.
OD_API float* od_distributions(const float* x, int rows, int size, const Distribution* how, float* distribution, const char* kernels) {
    return guarded([&] { return chosen(kernels).warp(x, rows, size, *how, distribution) ? distribution : nullptr; });
}

// At most `count` different draws from a distribution; `made` [1]: how many, 0 where it has no mass or is not finite.
OD_API std::int32_t* od_race(const float* distribution, int size, std::uint64_t key, int count, std::int32_t* winners,
                             std::int32_t* made, const char* kernels) {
    return guarded([&] { return *made = chosen(kernels).race(distribution, size, key, count, winners), winners; });
}

// x: bf16 or float [rows, size].
OD_API float* od_log_sums(const void* x, int is_narrow, int rows, int size, float* out, int threads, const char* kernels) {
    return guarded([&] { return chosen(kernels).log_sums(*team_of(threads), x, is_narrow, rows, size, out), out; });
}

// Null as well where a logarithm of nothing is asked for; then nothing is said of why.
OD_API float* od_row_losses(const RowLosses* rows, int threads, const char* kernels) {
    return guarded([&] { return chosen(kernels).losses(*team_of(threads), *rows) ? rows->losses : nullptr; });
}

}  // extern "C"

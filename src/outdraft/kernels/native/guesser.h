// What stands between a token and the logits of the next one, and the rows and chains that run through it.
//
//   token -> [entrance] -> layers -> state -> [exit] -> norm -> head -> logits -> next token
//
// A target and a draft model have neither entrance nor exit. A network on another model's features has an entrance, and that model's
// head or one of its own; a model that leaves its own layers early has an exit. Plain data: what `guess.h` computes with.
#pragma once
#include "model.h"
#include "workspace.h"

namespace outdraft {

enum class Origin : int { zero, feature, normed_feature };

// What the layers start from, of a row's embedding e and feature f. A norm that is not there changes nothing.
//
//   f    fusion [norm(t0) | norm(t1) ...] of the taps; without a fusion the one tap there is, normed
//   join      hidden = origin + join [norm(e) | norm(f)]
//   no join   hidden = origin, and the first layer reads [norm(e) | norm(f)] in place of its normed state
struct Entrance {
    int taps = 0, tap_width = 0;
    Matrix fusion, join;          // may have no data
    Buffer<float> tap_norms;      // [taps, tap_width]
    bool one_tap_norm = false;    // over all taps side by side, not over each
    float tap_eps = 0;
    Buffer<float> token_norm, feature_norm;  // [hidden]
    Origin origin = Origin::feature;
    bool norms_carried = false;   // a state that stands in for a feature is normed by the guesser's own norm
};

// State h -> h + down silu(up norm(h)).
struct Residual {
    Matrix up, down;
    Buffer<float> norm;
};

struct GuessSpace {  // buffers of a pass, grown on demand (guess.h)
    Workspace products;
    int rows = 0, scored = 0, chains = 0;
    Buffer<float> hidden, features, wide, states, fine, logits, own_logits;
    Buffer<std::int32_t> layers, tokens, positions;
};

struct Guesser {
    Model *body, *head;  // whose layers; whose head
    int num_layers = 0;
    const std::uint16_t* embedding = nullptr;  // [vocab, hidden] bf16; null: rows of blocks, or
    const Model* tied = nullptr;               // of this model's head
    od_blocks table{};
    float embedding_scale = 1;
    float eps = 0;                             // of the norms here, which are all by root mean square
    std::unique_ptr<Entrance> entrance;
    std::unique_ptr<Residual> exit;
    Buffer<float> norm;         // before the head; null: the head's own, or
    bool bare_head = false;     // none
    int num_ids = 0;            // tokens that logits are of: the head's, unless there are `ids`
    Buffer<std::int32_t> ids;   // [head's vocab] which of them the head's outputs are; the others are never guessed
    bool own_order = false;     // `ids` ascend and none is left out: the best output is the best token
    GuessSpace space;
};

// Rows to run through the layers.
struct Feed {
    int rows, num_spans;
    const std::int32_t *tokens, *positions;  // [rows]
    Span* spans;
    const float *cos, *sin;    // as in Pass
    std::int64_t table;
    const float* features;     // [rows, hidden], with an entrance only; null: from the taps
    const float* const* taps;  // [rows, hidden] each
    const std::int32_t* wanted;  // which rows' states and logits are
    int num_wanted;
    float *states, *logits;  // [wanted, hidden], [wanted, vocab]; null: none
    const std::uint8_t* skipped;  // of each layer, as in Pass
    float* const* kept;  // [layers] where the states after each go: [rows, hidden] or null; null: nowhere
};

// How a token is chosen from logits. The distribution is that of `sampling/warp.py`.
struct Distribution {
    float temperature, top_p, min_p;  // temperature 0: the best token
    int top_k;
};

// Zero what min-p, top-k and top-p leave out, and renormalise: distribution [size] in place (truncate.cpp).
void truncate(float* distribution, int size, const Distribution& how);

// After the rows of a feed, one row a step: the token chosen from a span's last row is its next input.
struct GuessChain {
    const std::int32_t* depths;         // [spans] tokens to choose, deepest first, at least 1
    int stride;                         // steps that the arrays below have room for
    int feed_last;                      // also run the last token through the layers
    const Distribution* distributions;  // [spans]
    const std::uint64_t* keys;          // [spans, stride] noise of a draw
    std::int32_t* tokens;               // [spans, stride]; -1 from a row on whose logits are not finite
    float* const* q;                    // [spans] rows [stride, vocab] that the distributions are left in, or null
    float* states;                      // [spans, stride, hidden] of the last rows, or null
    const float* cutoffs;               // [spans, 2] least probability of a token, of a path; null: never asked
    float* sure;                        // [spans, stride] each token's probability, where cutoffs are
    std::int32_t* made;                 // [1] steps chosen: once every span has passed below its cutoff the chain ends
};

}  // namespace outdraft

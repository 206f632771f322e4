// A decoder's packed weights and the description of one pass. Plain data: what `forward.h` computes with.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "losses.h"
#include "packed.h"
#include "pace.h"
#include "team.h"

namespace outdraft {

enum class Norm : int { rms, layer };             // a layer norm's weight is followed by its bias
enum class Activation : int { silu, gelu_tanh };  // Shazeer 2020; Hendrycks and Gimpel 2016, its tanh form

struct Shape {
    int hidden, heads, kv_heads, head_dim, inner, vocab, rotary;  // rotary: turned channels of a head
    float eps, scale;
    // What families add to Llama's arithmetic, with the values that change nothing.
    float added = 1, logit_scale = 1;    // what attention and feed-forward add is multiplied by; what logits are
    float score_cap = 0, logit_cap = 0;  // x becomes cap * tanh(x / cap); 0: it stays
    float growth = 0;                    // queries are multiplied by 1 + growth * ln(1 + position / first_len) where positions turn them
    int first_len = 1;                   // (of whole numbers)
    Activation activation = Activation::silu;
    int gated = 1;
    Norm norm = Norm::rms;
    int norms_whole = 0;  // queries and keys are normed over all heads at once
    int parallel = 0;     // the feed-forward reads what attention reads
    int head_norm_size(int count) const { return norms_whole ? count * head_dim : head_dim; }
    int norm_size(int width) const { return norm == Norm::layer ? 2 * width : width; }
};

struct LayerWeights {  // the head is a layer with one matrix, qkv, and one norm, attn_norm
    Matrix qkv, out, up, down;
    // Any may be null: without one of the first two, attention or feed-forward reads the state as it is.
    Buffer<float> attn_norm, mlp_norm, attn_post, mlp_post, q_norm, k_norm;  // post: of what is added
    int window = 0;  // keys that a row sees; 0: all
    int turns = 0;   // which of the pass's rotary tables; -1: positions turn nothing
};

template <class Layer, class Work>
void each_matrix(Layer& layer, Work work) {
    work(layer.qkv, 0), work(layer.out, 1), work(layer.up, 2), work(layer.down, 3);
}

struct Size {
    int num_out, num_in;
};
using Sizes = std::array<Size, 4>;  // of a layer's matrices, as `each_matrix` counts them

inline Sizes layer_sizes(const Shape& s) {
    const int width = s.heads * s.head_dim;
    const int up = s.gated ? 2 * s.inner : s.inner;
    return {{{width + 2 * s.kv_heads * s.head_dim, s.hidden}, {s.hidden, width}, {up, s.hidden}, {s.hidden, s.inner}}};
}
inline Sizes head_sizes(const Shape& s) { return {{{s.vocab, s.hidden}}}; }

constexpr int kPage = 16;  // slots of a page of a cache

// Where the rows of one sequence's cache stand: slot s of head h in layer l is row
// l * layer_rows + pages[s / 16] * page_rows + h * head_rows + s % 16. A contiguous cache is pages in a row.
struct Memory {
    void *keys, *values;                // rows [head_dim] of bf16, or of int8 with a scale each
    float *key_scales, *value_scales;   // one for each row; null: bf16
    const std::int32_t* pages;
    std::int64_t layer_rows, page_rows, head_rows;
};

// Rows [start, stop) of the pass: one sequence. They see the first `base` slots of its cache and are written at slots
// `first`.. (first = base, unless a drafter keeps the rows of several passes behind the text).
struct Span {
    std::int64_t start, stop, base, first;
    Memory memory;
    const std::int32_t* ends;  // [rows] end of each row's path in `path`; null: a chain, each row sees all before it
    const std::int32_t* path;  // slots counted from `base`, each path in order, the row itself last
};

struct Pass {
    float* hidden;  // [rows, hidden], in and out
    const std::int32_t* positions;  // [rows]
    const float *cos, *sin;         // [tables][positions, rotary]
    std::int64_t table;             // numbers from one table to the next
    int rows;
    const Span* spans;
    int num_spans;
    const std::int32_t* layers;  // which, in order
    int num_layers;
    float* const* taps;     // after layers[i]: [rows, hidden] or null
    float* const* middles;  // the same, after its attention
    float* const* queries;  // of layers[i], turned: [rows, heads * head_dim] or null
    const std::uint8_t* skipped;  // of layers[i]: 1 without attention, 2 without feed-forward; null: all run
    const float* beside;  // [rows, inputs] what the first layer's attention reads in place of `hidden`; null: that
};

struct Feed;
struct GuessChain;
struct Guesser;
struct Distribution;
struct Model;
struct Kernels {  // one instruction set's code
    const char* name;
    void (*run)(Model&, const Pass&);
    void (*logits)(Model&, const float* hidden, int rows, bool norm, float* out);
    void (*multiply)(Team&, const Matrix&, const float* x, int rows, float* out);
    void (*feed)(Guesser&, const Feed&);                     // guesser.h
    void (*guess)(Guesser&, const Feed&, const GuessChain&);
    void (*best_tokens)(const float* x, int rows, int size, std::int32_t* out, float* distribution);  // sample.h
    bool (*top_tokens)(const float* x, int rows, int size, int count, std::int32_t* tokens, float* log_probs);
    bool (*warp)(const float* x, int rows, int size, const Distribution& how, float* distribution);
    int (*race)(const float* distribution, int size, std::uint64_t key, int count, std::int32_t* winners);
    bool (*losses)(Team&, const RowLosses&);  // row_loss.h
    void (*log_sums)(Team&, const void* x, bool is_narrow, int rows, int size, float* out);
    double (*dot_work)(bool bytes, std::int64_t turns);  // peak.h
};
const Kernels& best_kernels();                  // for this machine
const Kernels* find_kernels(const char* name);  // null: not built, or this machine cannot run it

struct Workspace;  // buffers of a pass, grown on demand (forward.h)
struct FreeWorkspace {
    void operator()(Workspace* space) const;
};

// The teams that a model's passes choose from.
class Crews {
public:
    explicit Crews(int most = 1) : most_(most), pace_(most) {}
    Pace& pace() { return pace_; }
    int most() const { return most_; }
    const std::shared_ptr<Team>& of(int size) {
        auto& team = teams_[size];
        if (!team) team = team_of(size);
        return team;
    }

private:
    int most_;
    Pace pace_;
    std::map<int, std::shared_ptr<Team>> teams_;
};

struct Model {
    Shape shape;
    const Kernels* kernels;
    std::shared_ptr<Team> team;  // of the present pass
    Crews crews;
    std::vector<LayerWeights> layers;
    LayerWeights head;
    std::unique_ptr<Workspace, FreeWorkspace> space;
    std::mutex one_pass;  // several engines may share a model; the workspace serves one pass at a time

    // What is read from a file at once: a layer, or (behind the last) the head. Throws where there is none.
    bool is_head(int unit) const { return unit == int(layers.size()); }
    LayerWeights& unit(int i) { return is_head(i) ? head : layers.at(i); }
};

}  // namespace outdraft

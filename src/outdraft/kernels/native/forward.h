// A decoder's layers over the rows of a pass: the members of a team share outputs (products), rows (norms) and heads
// (attention), and meet at a barrier between.
//
//   h -> norm -> qkv -> rotate, write to the cache -> attention -> out -> + h -> norm -> gate|up -> silu -> down -> + h
#pragma once
#include "amx.h"
#include "attention.h"
#include "linear.h"
#include "rows.h"
#include "workspace.h"

namespace OD_ISA {

using outdraft::Chain;
using outdraft::LayerWeights;
using outdraft::Model;
using outdraft::Pass;
using outdraft::Shape;
using outdraft::Span;
using outdraft::Team;
using outdraft::Workspace;

static inline void product(const Matrix& m, const Operand& x, int rows, float* out, std::size_t stride, int id, int team) {
#if defined(__AMX_BF16__) && defined(__AMX_INT8__)
    if (!is_grouped(m.kind) && m.num_in % 64 == 0) return amx_product(m, x, rows, out, stride, id, team);
#endif
    tile_product(m, x, rows, out, stride, id, team);
}

// One pass as one member of the team sees it.
class Worker {
public:
    Worker(Model& model, const Pass& pass, int id)
        : model_(model), shape_(model.shape), pass_(pass), space_(*model.space), barrier_(model.team->barrier()),
          id_(id), team_(model.team->size()), qkv_size_((shape_.heads + 2 * shape_.kv_heads) * shape_.head_dim),
          operand_{space_.half.get(), space_.bytes.get(), space_.scales.get(), space_.offsets.get()} {}

    void run() {
        for (int i = 0; i < pass_.num_layers; i++) {
            const int index = pass_.layers[i];
            const LayerWeights& layer = model_.layers[index];
            attention(layer, index);
            feed_forward(layer);
            add_to_hidden(space_.narrow.get());
            if (pass_.taps && pass_.taps[i])
                each_row([&](int r) {
                    std::memcpy(pass_.taps[i] + offset(r), pass_.hidden + offset(r), sizeof(float) * shape_.hidden);
                });
        }
    }

private:
    std::size_t offset(int row) const { return std::size_t(row) * shape_.hidden; }
    template <class Work>
    void each_row(Work work) {
        for (int r = id_; r < pass_.rows; r += team_) work(r);
    }
    // Rows are handed from member to member here: the same rows are always the same member's, so that no barrier is
    // needed between two steps that go row by row.
    void add_to_hidden(const float* change) {
        each_row([&](int r) {
            float* h = pass_.hidden + offset(r);
            for (int i = 0; i < shape_.hidden; i += 16) store(h + i, load(h + i) + load(change + offset(r) + i));
        });
    }
    void norm_into(const float* weight, Kind kind) {
        each_row([&](int r) {
            float* line = space_.normed_row(r);
            rms_norm(pass_.hidden + offset(r), weight, line, shape_.hidden, shape_.eps);
            prepare(kind, line, shape_.hidden, operand_, r);
        });
    }

    void attention(const LayerWeights& layer, int index) {
        norm_into(layer.attn_norm.get(), layer.qkv.kind);
        barrier_.wait();
        product(layer.qkv, operand_, pass_.rows, space_.qkv.get(), qkv_size_, id_, team_);
        barrier_.wait();
        for (int s = 0; s < pass_.num_spans; s++)
            for (int head = 0; head < shape_.kv_heads; head++)
                if ((s * shape_.kv_heads + head) % team_ == id_) attend_head(layer, pass_.spans[s], index, head);
        barrier_.wait();
        const int size = shape_.heads * shape_.head_dim;
        each_row([&](int r) {
            prepare(layer.out.kind, space_.mixed.get() + std::size_t(r) * size, size, operand_, r);
        });
        barrier_.wait();
        product(layer.out, operand_, pass_.rows, space_.narrow.get(), shape_.hidden, id_, team_);
        barrier_.wait();
        add_to_hidden(space_.narrow.get());
    }

    void feed_forward(const LayerWeights& layer) {
        norm_into(layer.mlp_norm.get(), layer.up.kind);
        barrier_.wait();
        product(layer.up, operand_, pass_.rows, space_.wide.get(), 2 * shape_.inner, id_, team_);
        barrier_.wait();
        each_row([&](int r) {
            float* gate = space_.wide.get() + std::size_t(r) * 2 * shape_.inner;
            silu_gate(gate, shape_.inner);
            prepare(layer.down.kind, gate, shape_.inner, operand_, r);
        });
        barrier_.wait();
        product(layer.down, operand_, pass_.rows, space_.narrow.get(), shape_.hidden, id_, team_);
        barrier_.wait();
    }

    // One key/value head of one span: norm and turn its queries and keys, write the new slots, attend.
    void attend_head(const LayerWeights& layer, const Span& span, int index, int head) {
        const int d = shape_.head_dim, group = shape_.heads / shape_.kv_heads, n = int(span.stop - span.start);
        const outdraft::Memory& memory = span.memory;
        const std::size_t origin = std::size_t(index * memory.layer_rows + head * memory.head_rows) * d;
        bf16* keys = static_cast<bf16*>(memory.keys) + origin;
        bf16* values = static_cast<bf16*>(memory.values) + origin;
        const View view{keys, values, memory.pages, memory.page_rows, int(span.base), d};
        for (int r = 0; r < n; r++) {
            const std::size_t row = std::size_t(span.start + r);
            float* line = space_.qkv.get() + row * qkv_size_;
            for (int g = 0; g < group; g++) place(line + (head * group + g) * d, layer.q_norm.get(), row);
            float* key = line + (shape_.heads + head) * d;
            place(key, layer.k_norm.get(), row);
            const float* value = line + (shape_.heads + shape_.kv_heads + head) * d;
            const std::size_t slot = view.offset(int(span.first) + r);
            for (int i = 0; i < d; i += 16) {
                narrow(keys + slot + i, load(key + i));
                narrow(values + slot + i, load(value + i));
            }
        }
        static thread_local Scratch scratch;
        scratch.reserve(int(span.base) + n, d);
        for (int t = 0; t < span.base + n; t++) scratch.slots[t] = t;
        const int low = layer.window ? window_start(int(span.base) + 1, layer.window) / 16 * 16 : 0;
        if (!span.ends) {
            lay_out(scratch, view, low, int(span.base) + n);
            gather(layer, span, head, 0, n, scratch, view, nullptr);
            return;
        }
        lay_out(scratch, view, low, int(span.base));
        for (int r = 0, begin = 0; r < n; begin = span.ends[r++]) {
            const int seen = span.ends[r] - begin;
            for (int i = 0; i < seen; i++) scratch.slots[span.base + i] = int(span.base) + span.path[begin + i];
            lay_out(scratch, view, int(span.base) / 16 * 16, int(span.base) + seen);
            gather(layer, span, head, r, r + 1, scratch, view, &seen);
        }
    }

    // Rows [first, stop) times the head's group of queries, four at a time. `seen`: length of the one row's path.
    void gather(const LayerWeights& layer, const Span& span, int head, int first, int stop, Scratch& scratch,
                const View& view, const int* seen) {
        const int d = shape_.head_dim, group = shape_.heads / shape_.kv_heads;
        Query queries[kQueries];
        int count = 0;
        for (int r = first; r < stop; r++)
            for (int g = 0; g < group; g++) {
                const std::size_t row = std::size_t(span.start + r);
                const int len = int(span.base) + (seen ? *seen : r + 1), at = head * group + g;
                queries[count++] = Query{space_.qkv.get() + row * qkv_size_ + at * d,
                                         space_.mixed.get() + (row * shape_.heads + at) * d,
                                         window_start(len, layer.window), len};
                if (count == kQueries) attend_some(scratch, view, queries, count, shape_.scale), count = 0;
            }
        if (count) attend_some(scratch, view, queries, count, shape_.scale);
    }

    void place(float* x, const float* norm, std::size_t row) {
        if (norm) rms_norm(x, norm, x, shape_.head_dim, shape_.eps);
        const std::size_t at = row * shape_.rotary;
        if (shape_.rotary) rotate(x, pass_.cos + at, pass_.sin + at, shape_.rotary);
    }
    static int window_start(int len, int window) { return window && len > window ? len - window : 0; }

    Model& model_;
    const Shape& shape_;
    const Pass& pass_;
    Workspace& space_;
    outdraft::Barrier& barrier_;
    const int id_, team_, qkv_size_;
    Operand operand_;
};

static void run(Model& model, const Pass& pass) {
    model.space->reserve(model.shape, pass.rows);
    model.team->run([&](int id) { Worker(model, pass, id).run(); });
}

static void logits(Model& model, const float* hidden, int rows, bool norm, float* out) {
    const Shape& shape = model.shape;
    Workspace& space = *model.space;
    space.reserve(shape, rows);
    Operand operand{space.half.get(), space.bytes.get(), space.scales.get(), space.offsets.get()};
    model.team->run([&](int id) {
        for (int r = id; r < rows; r += model.team->size()) {
            const float* line = hidden + std::size_t(r) * shape.hidden;
            if (norm) rms_norm(line, model.final_norm.get(), space.normed_row(r), shape.hidden, shape.eps);
            prepare(model.head.kind, norm ? space.normed_row(r) : line, shape.hidden, operand, r);
        }
        model.team->barrier().wait();
        product(model.head, operand, rows, out, shape.vocab, id, model.team->size());
    });
}

// All steps of a chain without a word from outside.
static void chain(Model& model, const Chain& from) {
    const Shape& shape = model.shape;
    const int n = from.num_spans;
    model.space->reserve_chain(shape, n);
    float* hidden = model.space->hidden.get();
    float* scores = model.space->logits.get();
    std::vector<std::int32_t> layers(model.layers.size());
    for (std::size_t i = 0; i < layers.size(); i++) layers[i] = int(i);
    for (int step = 0; step < from.steps; step++) {
        const std::int32_t* tokens = from.tokens + std::size_t(step) * n;
        for (int r = 0; r < n; r++) {
            const bf16* row = from.embedding + std::size_t(tokens[r] < 0 ? 0 : tokens[r]) * shape.hidden;
            for (int i = 0; i < shape.hidden; i += 16) store(hidden + std::size_t(r) * shape.hidden + i, widen(row + i));
        }
        const std::size_t turn = std::size_t(step) * n * shape.rotary;
        run(model, Pass{hidden, from.cos + turn, from.sin + turn, n, from.spans, n, layers.data(), int(layers.size()),
                        nullptr});
        logits(model, hidden, n, true, scores);
        for (int r = 0; r < n; r++) {
            const int best = best_token(scores + std::size_t(r) * shape.vocab, shape.vocab);
            from.tokens[std::size_t(step + 1) * n + r] = tokens[r] < 0 ? -1 : best;
            from.spans[r].base++, from.spans[r].first++;
        }
    }
}

// x [rows, K] -> out [rows, N]: one product by itself, for tests and measurements.
static void multiply(Team& team, const Matrix& m, const float* x, int rows, float* out) {
    Shape shape{m.num_in, 0, 0, 0, 0, 0, 0, 0, 0};
    Workspace space;
    space.reserve(shape, rows);
    Operand operand{space.half.get(), space.bytes.get(), space.scales.get(), space.offsets.get()};
    team.run([&](int id) {
        for (int r = id; r < rows; r += team.size()) prepare(m.kind, x + std::size_t(r) * m.num_in, m.num_in, operand, r);
        team.barrier().wait();
        product(m, operand, rows, out, m.num_out, id, team.size());
    });
}

}  // namespace OD_ISA

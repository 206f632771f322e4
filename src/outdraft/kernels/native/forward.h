// A decoder's layers over the rows of a pass: the members of a team share outputs (products), rows (norms) and heads
// (attention), and meet at a barrier between.
//
//   h -> norm -> qkv -> rotate, write to the cache -> attention -> out -> + h -> norm -> gate|up -> silu -> down -> + h
#pragma once
#include <algorithm>

#include "attend.h"
#include "grouped_amx.h"
#include "linear.h"
#include "rows.h"
#include "workspace.h"

namespace OD_ISA {

using outdraft::LayerWeights;
using outdraft::Model;
using outdraft::Pass;
using outdraft::Shape;
using outdraft::Span;
using outdraft::Team;
using outdraft::Workspace;

static inline void product(const Matrix& m, const Operand& x, int rows, float* out, std::size_t stride, Share& share) {
    if (!rows) return;  // the matrix unit knows no tiles without rows
#if defined(__AMX_BF16__) && defined(__AMX_INT8__)
    // Sums of bytes are exact, so few rows may take the vector unit, which streams weights better.
    const bool few = m.kind == Kind::int8 && rows <= kFewRows;
    if (!few && !m.is_grouped() && m.kind != Kind::blocks && m.num_in % 64 == 0)
        return m.kind == Kind::bf16 ? amx_product<false>(m, x, rows, out, stride, share)
                                    : amx_product<true>(m, x, rows, out, stride, share);
    if (m.is_grouped() && m.num_in % kWideGroup == 0 && rows >= (m.step == kGroup ? kManyNarrow : kManyWide))
        return amx_grouped(m, x, rows, out, stride, share);
#endif
    tile_product(m, x, rows, out, stride, share);
}

// One pass as one member of the team sees it.
class Worker {
public:
    Worker(Model& model, const Pass& pass, int id)
        : model_(model), shape_(model.shape), pass_(pass), space_(*model.space), barrier_(model.team->barrier()),
          share_(*model.team, id), id_(id), team_(model.team->size()), group_(shape_.heads / shape_.kv_heads),
          qkv_size_((shape_.heads + 2 * shape_.kv_heads) * shape_.head_dim),
          operand_(operand_in(space_)) {}

    void run() {
        for (int i = 0; i < pass_.num_layers; i++) {
            const int index = pass_.layers[i];
            const LayerWeights& layer = model_.layers[index];
            const int skipped = pass_.skipped ? pass_.skipped[i] : 0;
            if (!(skipped & 1)) attention(layer, index, i ? nullptr : pass_.beside, pass_.queries ? pass_.queries[i] : nullptr);
            if (pass_.middles) keep_hidden(pass_.middles[i]);
            if (!(skipped & 2)) feed_forward(layer, !(skipped & 1));
            if (pass_.taps) keep_hidden(pass_.taps[i]);
        }
    }

private:
    std::size_t offset(int row) const { return std::size_t(row) * shape_.hidden; }
    template <class Work>
    void each_row(Work work) {
        for (int r = id_; r < pass_.rows; r += team_) work(r);
    }
    void keep_hidden(float* to) {
        if (!to) return;
        each_row([&](int r) { std::memcpy(to + offset(r), pass_.hidden + offset(r), sizeof(float) * shape_.hidden); });
    }
    // Rows are handed from member to member here: the same rows are always the same member's, so that no barrier is
    // needed between two steps that go row by row.
    void add_to_hidden(float* changes, const float* post) {
        each_row([&](int r) {
            float *h = pass_.hidden + offset(r), *change = changes + offset(r);
            if (post) norm_row(shape_, change, post, change, shape_.hidden);
            if (shape_.added == 1)
                for (int i = 0; i < shape_.hidden; i += 16) store(h + i, load(h + i) + load(change + i));
            else
                for (int i = 0; i < shape_.hidden; i += 16) store(h + i, load(h + i) + load(change + i) * shape_.added);
        });
    }
    void norm_into(const float* weight, const Matrix& m) {  // without a norm: the states as they are
        if (!weight) return take_in(pass_.hidden, m);
        each_row([&](int r) {
            float* line = space_.normed_row(r);
            norm_row(shape_, pass_.hidden + offset(r), weight, line, shape_.hidden);
            prepare(m, line, operand_, r);
        });
    }
    void take_in(const float* lines, const Matrix& m) {  // [rows, inputs], as they are
        each_row([&](int r) { prepare(m, lines + std::size_t(r) * m.num_in, operand_, r); });
    }

    void attention(const LayerWeights& layer, int index, const float* beside, float* queries) {
        if (beside) take_in(beside, layer.qkv);
        else norm_into(layer.attn_norm.get(), layer.qkv);
        if (shape_.parallel)  // the feed-forward finds it there
            each_row([&](int r) {
                norm_row(shape_, pass_.hidden + offset(r), layer.mlp_norm.get(), space_.normed_row(r), shape_.hidden);
            });
        barrier_.wait();
        product(layer.qkv, operand_, pass_.rows, space_.qkv, qkv_size_, share_);
        barrier_.wait();
        if (shape_.norms_whole && layer.q_norm) {
            const int queries_size = shape_.heads * shape_.head_dim;
            each_row([&](int r) {
                float *q = space_.qkv + std::size_t(r) * qkv_size_, *k = q + queries_size;
                rms_norm(q, layer.q_norm.get(), q, queries_size, shape_.eps);
                rms_norm(k, layer.k_norm.get(), k, shape_.kv_heads * shape_.head_dim, shape_.eps);
            });
            barrier_.wait();
        }
        place_rows(layer, index);
        barrier_.wait();
        attend_spans(layer, index);
        barrier_.wait();
        const int size = shape_.heads * shape_.head_dim;
        each_row([&](int r) {
            if (queries)
                std::memcpy(queries + std::size_t(r) * size, space_.qkv + std::size_t(r) * qkv_size_, sizeof(float) * size);
            prepare(layer.out, space_.mixed + std::size_t(r) * size, operand_, r);
        });
        barrier_.wait();
        product(layer.out, operand_, pass_.rows, space_.narrow.get(), shape_.hidden, share_);
        barrier_.wait();
        add_to_hidden(space_.narrow.get(), layer.attn_post.get());
    }

    void feed_forward(const LayerWeights& layer, bool attended) {
        if (shape_.parallel && attended) take_in(space_.normed_row(0), layer.up);
        else norm_into(layer.mlp_norm.get(), layer.up);
        barrier_.wait();
        const int wide = layer.up.num_out;
        product(layer.up, operand_, pass_.rows, space_.wide.get(), wide, share_);
        barrier_.wait();
        each_row([&](int r) {
            float* gate = space_.wide.get() + std::size_t(r) * wide;
            activate(shape_, gate);
            prepare(layer.down, gate, operand_, r);
        });
        barrier_.wait();
        product(layer.down, operand_, pass_.rows, space_.narrow.get(), shape_.hidden, share_);
        barrier_.wait();
        add_to_hidden(space_.narrow.get(), layer.mlp_post.get());
    }

    // Norm and turn queries and keys; keys and values go to their slots. The members share rows and heads.
    void place_rows(const LayerWeights& layer, int index) {
        int unit = 0;
        for (int s = 0; s < pass_.num_spans; s++)
            for (int r = 0; r < pass_.spans[s].stop - pass_.spans[s].start; r++)
                for (int head = 0; head < shape_.kv_heads; head++)
                    if (unit++ % team_ == id_) place_row(layer, pass_.spans[s], index, r, head);
    }
    void place_row(const LayerWeights& layer, const Span& span, int index, int r, int head) {
        const int d = shape_.head_dim, slot = int(span.first) + r;
        const std::size_t row = std::size_t(span.start + r);
        float* line = space_.qkv + row * qkv_size_;
        for (int g = 0; g < group_; g++) {
            float* query = line + (head * group_ + g) * d;
            place(query, layer, layer.q_norm.get(), row);
            if (shape_.growth != 0 && layer.turns >= 0) grow(query, pass_.positions[row]);
        }
        float* key = line + (shape_.heads + head) * d;
        place(key, layer, layer.k_norm.get(), row);
        const float* value = key + shape_.kv_heads * d;
        if (span.memory.key_scales) View<std::int8_t>(span.memory, index, head, d).write(slot, key, value);
        else View<bf16>(span.memory, index, head, d).write(slot, key, value);
    }

    // Every query costs what it looks back on. The members take equal shares of the whole, so a head may be shared.
    void attend_spans(const LayerWeights& layer, int index) {
        std::int64_t total = 0, at = 0;
        for (int s = 0; s < pass_.num_spans; s++) total += shape_.kv_heads * queries(pass_.spans[s]) * cost(pass_.spans[s]);
        const std::int64_t from = total * id_ / team_, to = total * (id_ + 1) / team_;
        for (int s = 0; s < pass_.num_spans; s++) {
            const Span& span = pass_.spans[s];
            const std::int64_t each = cost(span), count = queries(span);
            const auto query_at = [&](std::int64_t point) {  // the first one that begins at the point or later
                return point <= at ? 0 : int(std::min(count, (point - at + each - 1) / each));
            };
            for (int head = 0; head < shape_.kv_heads; head++, at += count * each) {
                const int first = query_at(from), stop = query_at(to);
                if (first >= stop) continue;
                if (span.memory.key_scales) attend_head<std::int8_t>(layer, span, index, head, first, stop);
                else attend_head<bf16>(layer, span, index, head, first, stop);
            }
        }
    }
    std::int64_t queries(const Span& span) const { return (span.stop - span.start) * group_; }
    static std::int64_t cost(const Span& span) { return span.base + span.stop - span.start; }

    // Queries [first, stop) of one head of a span; `group_` of them belong to each row.
    template <class T>
    void attend_head(const LayerWeights& layer, const Span& span, int index, int head, int first, int stop) {
        const int d = shape_.head_dim, base = int(span.base);
        const View<T> view(span.memory, index, head, d);
        Scratch& scratch = own_scratch();
        int above = int(span.stop - span.start);  // positions above the base; a path may hold rows of earlier passes
        for (int r = 0, begin = 0; span.ends && r < span.stop - span.start; begin = span.ends[r++])
            above = std::max(above, span.ends[r] - begin);
        scratch.reserve(base + above, d);
        const int low = window_start(base + 1, layer.window) / 32 * 32;
        const int shared = span.ends ? base : base + (stop - 1) / group_ + 1;  // positions that all rows have in common
        for (int t = low; t < shared; t++) scratch.place(view, t, t);
        lay_out(scratch, view, low, shared);
        if (!span.ends) return gather(layer, span, head, first, stop, scratch, view, nullptr);
        for (int r = first / group_; r * group_ < stop; r++) {
            const int begin = r ? span.ends[r - 1] : 0, seen = span.ends[r] - begin;
            for (int i = 0; i < seen; i++) scratch.place(view, base + i, base + span.path[begin + i]);
            lay_out(scratch, view, base / 32 * 32, base + seen);
            gather(layer, span, head, std::max(first, r * group_), std::min(stop, (r + 1) * group_), scratch, view,
                   &seen);
        }
    }

    // As many queries at a time as share keys. `seen`: length of the path, if they are one row's.
    template <class T>
    void gather(const LayerWeights& layer, const Span& span, int head, int first, int stop, Scratch& scratch,
                const View<T>& view, const int* seen) {
        const int d = shape_.head_dim;
        Query queries[kQueries];
        int count = 0;
        for (int i = first; i < stop; i++) {
            const std::size_t row = std::size_t(span.start + i / group_);
            const int len = int(span.base) + (seen ? *seen : i / group_ + 1), at = head * group_ + i % group_;
            queries[count++] = Query{space_.qkv + row * qkv_size_ + at * d,
                                     space_.mixed + (row * shape_.heads + at) * d,
                                     window_start(len, layer.window), len};
            if (count == kQueries) attend(scratch, view, queries, count, shape_.scale, shape_.score_cap), count = 0;
        }
        if (count) attend(scratch, view, queries, count, shape_.scale, shape_.score_cap);
    }

    void place(float* x, const LayerWeights& layer, const float* norm, std::size_t row) {
        if (norm && !shape_.norms_whole) rms_norm(x, norm, x, shape_.head_dim, shape_.eps);
        if (layer.turns < 0) return;
        const std::size_t at = std::size_t(layer.turns) * pass_.table + std::size_t(pass_.positions[row]) * shape_.rotary;
        if (shape_.rotary) rotate(x, pass_.cos + at, pass_.sin + at, shape_.rotary);
    }
    void grow(float* query, int position) const {
        const float by = 1 + shape_.growth * std::log1p(float(position / shape_.first_len));
        for (int i = 0; i < shape_.head_dim; i += 16) store(query + i, load(query + i) * by);
    }
    static int window_start(int len, int window) { return window && len > window ? len - window : 0; }

    Model& model_;
    const Shape& shape_;
    const Pass& pass_;
    Workspace& space_;
    outdraft::Barrier& barrier_;
    Share share_;
    const int id_, team_, group_, qkv_size_;
    Operand operand_;
};

static void run(Model& model, const Pass& pass) {
    model.space->reserve(model.shape, pass.rows, pass.beside ? model.layers[pass.layers[0]].qkv.num_in : 0);
    model.team->run([&](int id) { Worker(model, pass, id).run(); });
}

// Up to sixteen logits, in place.
static inline void bound_logits(const Shape& shape, float* x, int count) {
    alignas(64) float lanes[16] = {};
    std::memcpy(lanes, x, sizeof(float) * count);
    f32x16 v = load(lanes) * shape.logit_scale;
    if (shape.logit_cap > 0) v = soft_cap(v, shape.logit_cap);
    store(lanes, v);
    std::memcpy(x, lanes, sizeof(float) * count);
}

static void logits(Model& model, const float* hidden, int rows, bool norm, float* out) {
    const Shape& shape = model.shape;
    Workspace& space = *model.space;
    space.reserve(shape, rows);
    Operand operand = operand_in(space);
    model.team->run([&](int id) {
        for (int r = id; r < rows; r += model.team->size()) {
            const float* line = hidden + std::size_t(r) * shape.hidden;
            if (norm) norm_row(shape, line, model.head.attn_norm.get(), space.normed_row(r), shape.hidden);
            prepare(model.head.qkv, norm ? space.normed_row(r) : line, operand, r);
        }
        model.team->barrier().wait();
        Share share(*model.team, id);
        product(model.head.qkv, operand, rows, out, shape.vocab, share);
        if (shape.logit_scale == 1 && shape.logit_cap == 0) return;
        model.team->barrier().wait();
        const int blocks = (shape.vocab + 15) / 16;
        for (int r = 0; r < rows; r++)
            for (int b = blocks * id / model.team->size(); b < blocks * (id + 1) / model.team->size(); b++)
                bound_logits(shape, out + std::size_t(r) * shape.vocab + 16 * b, std::min(16, shape.vocab - 16 * b));
    });
}

// x [rows, K] -> out [rows, N], with room in `space`.
static inline void multiply(Team& team, Workspace& space, const Matrix& m, const float* x, int rows, float* out) {
    Operand operand = operand_in(space);
    team.run([&](int id) {
        for (int r = id; r < rows; r += team.size()) prepare(m, x + std::size_t(r) * m.num_in, operand, r);
        team.barrier().wait();
        Share share(team, id);
        product(m, operand, rows, out, m.num_out, share);
    });
}

// One product by itself, for tests and measurements.
static void multiply_alone(Team& team, const Matrix& m, const float* x, int rows, float* out) {
    Workspace space;
    space.reserve(Shape{m.num_in, 0, 0, 0, 0, 0, 0, 0, 0}, rows);
    multiply(team, space, m, x, rows, out);
}

}  // namespace OD_ISA

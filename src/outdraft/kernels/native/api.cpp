// The C interface: plain pointers and sizes, so that no binding depends on Python's or PyTorch's build.
// Nothing is thrown across it: a function that can fail returns null, and `od_error` says why.
#include "api.h"
#include "image.h"
#include "read.h"
#include "workspace.h"

using namespace outdraft;

namespace {

// With the model to itself: no pass runs on it, and no other caller changes it.
template <class Work>
Model* alone(Model* model, Work work) {
    return guarded([&] {
        std::lock_guard<std::mutex> lock(model->one_pass);
        work();
        return model;
    });
}

}  // namespace

extern "C" {

OD_API const char* od_error() { return last_error.c_str(); }
OD_API const char* od_best_kernels() { return best_kernels().name; }
OD_API int od_has_kernels(const char* name) { return find_kernels(name) != nullptr; }

OD_API Model* od_model_new(const Shape* shape, int num_layers, int threads, const char* kernels) {
    return guarded([&]() -> Model* {
        auto model = std::make_unique<Model>();
        model->shape = *shape;
        model->kernels = &chosen(kernels);
        model->crews = Crews(threads);
        model->team = model->crews.of(threads);
        model->layers.resize(num_layers);
        model->space.reset(new Workspace);
        return model.release();
    });
}

OD_API void od_model_free(Model* model) { delete model; }

// The parts are qkv, out, up (gate | up) and down. Without an attn norm attention reads the state as it is, or two side by
// side, which are given beside (Pass). Returns null on failure.
OD_API Model* od_model_set_layer(Model* model, int index, const od_linear* parts, const od_norms* norms, int window,
                                 int turns) {
    return alone(model, [&] {
        LayerWeights& layer = model->layers.at(index);
        const Shape& shape = model->shape;
        Sizes sizes = layer_sizes(shape);
        if (!norms->attn && parts[0].num_in == 2 * shape.hidden) sizes[0].num_in = 2 * shape.hidden;
        each_matrix(layer, [&](Matrix& m, int i) { m = pack(parts[i], sizes[i]); });
        if (shape.parallel && !norms->mlp) throw std::runtime_error("parallel halves need a norm before the feed-forward");
        const int width = shape.norm_size(shape.hidden);
        layer.attn_norm = copy(norms->attn, width), layer.mlp_norm = copy(norms->mlp, width);
        layer.attn_post = copy(norms->attn_post, width), layer.mlp_post = copy(norms->mlp_post, width);
        layer.q_norm = copy(norms->q, shape.head_norm_size(shape.heads));
        layer.k_norm = copy(norms->k, shape.head_norm_size(shape.kv_heads));
        layer.window = window, layer.turns = turns;
    });
}

OD_API Model* od_model_set_head(Model* model, const od_linear* head, const float* final_norm) {
    return alone(model, [&] {
        model->head.qkv = pack(*head, head_sizes(model->shape)[0]);
        model->head.attn_norm = copy(final_norm, model->shape.norm_size(model->shape.hidden));
    });
}

// The head's matrix as it was before it was packed, [vocab, hidden] bf16; null where it holds integers or has a bias.
OD_API Model* od_model_read_head(Model* model, std::uint16_t* out) {
    return alone(model, [&] {
        require_weights(model->head, "of the head");
        if (model->head.qkv.kind != Kind::bf16 || model->head.qkv.bias)
            throw std::runtime_error("the head is no matrix of bf16 alone");
        unpack_bf16(model->head.qkv, out);
    });
}

// Rows of the head's matrix [count, hidden]: the embedding's, where the two are tied.
OD_API Model* od_model_read_rows(Model* model, const std::int64_t* rows, std::int64_t count, float* out) {
    return alone(model, [&] {
        require_weights(model->head, "of the head");
        for (std::int64_t i = 0; i < count; i++) {
            if (rows[i] < 0 || rows[i] >= model->shape.vocab) throw std::runtime_error("a row that the head does not have");
            read_row(model->head.qkv, int(rows[i]), out + i * model->shape.hidden);
        }
    });
}

// What the products of a pass read: the layers' and the head's packed weights.
OD_API std::int64_t od_model_bytes(Model* model) {
    std::lock_guard<std::mutex> lock(model->one_pass);
    std::size_t total = 0;
    for (int unit = 0; unit <= int(model->layers.size()); unit++)
        each_matrix(model->unit(unit), [&](const Matrix& m, int) { total += m.bytes(); });
    return std::int64_t(total);
}

// Bytes of a unit's image; 0 on failure.
OD_API std::int64_t od_model_unit_bytes(Model* model, int index) {
    std::int64_t bytes = 0;
    alone(model, [&] { bytes = std::int64_t(image_bytes(model->unit(index), model->shape)); });
    return bytes;
}

OD_API Model* od_model_write_unit(Model* model, int index, void* to) {
    return alone(model, [&] { write_image(model->unit(index), model->shape, static_cast<std::uint8_t*>(to)); });
}

// The unit's weights are the image at `from` (64-byte aligned) until another is lent; the caller keeps it.
OD_API Model* od_model_lend_unit(Model* model, int index, void* from, std::int64_t bytes) {
    return alone(model, [&] {
        model->unit(index) =
            lend_image(static_cast<std::uint8_t*>(from), std::size_t(bytes), model->shape, model->is_head(index));
    });
}

OD_API std::uint64_t od_checksum(const void* from, std::int64_t bytes) {
    return checksum(static_cast<const std::uint8_t*>(from), std::size_t(bytes));
}

// All passes from now on: so many threads, but no more than a model was packed for; 0: as many as were quickest.
// Returns what held before.
OD_API int od_fix_threads(int count) { return fixed_threads().exchange(count); }

OD_API std::uint64_t od_model_read(Model* model) {
    std::lock_guard<std::mutex> lock(model->one_pass);
    model->team = model->crews.of(model->crews.most());
    return read_weights(*model);
}

OD_API Model* od_model_run(Model* model, const Pass* pass) {
    return alone(model, [&] {
        for (int i = 0; i < pass->num_layers; i++) {
            const LayerWeights& layer = model->layers.at(pass->layers[i]);
            require_weights(layer, "of a layer");
            if (!(i == 0 && pass->beside) && layer.qkv.num_in != model->shape.hidden)
                throw std::runtime_error("a layer reads two states side by side, and is given one");
        }
        Paced paced(*model, Paced::layers, pass->rows, pass->num_layers);
        model->kernels->run(*model, *pass);
    });
}

OD_API Model* od_model_logits(Model* model, const float* hidden, int rows, int norm, float* out) {
    return alone(model, [&] {
        require_weights(model->head, "of the head");
        Paced paced(*model, Paced::head, rows);
        model->kernels->logits(*model, hidden, rows, norm != 0, out);
    });
}

// Operations in `turns` turns of a loop of dot products, on every thread: bits 16, or bytes; 0 on failure.
OD_API double od_dot_work(int bits, std::int64_t turns, int threads, const char* kind) {
    double done = 0;
    guarded([&] {
        const Kernels& kernels = chosen(kind);
        std::vector<double> each(threads);
        team_of(threads)->run([&](int id) { each[id] = kernels.dot_work(bits != 16, turns); });
        for (const double one : each) done += one;
        return &done;
    });
    return done;
}

OD_API Matrix* od_matrix_new(const od_linear* from) {
    return guarded([&] { return new Matrix(pack(*from)); });
}

OD_API void od_matrix_free(Matrix* matrix) { delete matrix; }

OD_API std::int64_t od_matrix_bytes(const Matrix* matrix) { return std::int64_t(matrix->bytes()); }

OD_API Matrix* od_matrix_multiply(Matrix* matrix, const float* x, int rows, float* out, int threads, const char* kernels) {
    return guarded([&] {
        return chosen(kernels).multiply(*team_of(threads), *matrix, x, rows, out), matrix;
    });
}

}  // extern "C"

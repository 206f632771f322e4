// The C interface: plain pointers and sizes, so that no binding depends on Python's or PyTorch's build.
// Nothing is thrown across it: a function that can fail returns null, and `od_error` says why.
#include "api.h"
#include "image.h"
#include "read.h"
#include "workspace.h"

using namespace outdraft;

namespace {

// A pass, when no other is running on the model.
template <class Work>
Model* alone(Model* model, Work work) {
    return guarded([&] {
        std::lock_guard<std::mutex> lock(model->one_pass);
        work();
        return model;
    });
}

// A unit of what is read from a file at once: a layer, or (behind the last) the head with the final norm.
template <class Work>
void on_unit(Model& model, int index, Work work) {
    if (index < int(model.layers.size())) return work(model.layers.at(index));
    LayerWeights unit;
    unit.qkv = std::move(model.head), unit.attn_norm = std::move(model.final_norm);
    work(unit);
    model.head = std::move(unit.qkv), model.final_norm = std::move(unit.attn_norm);
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
        model->kernels = kernels && *kernels ? find_kernels(kernels) : &best_kernels();
        if (!model->kernels) throw std::runtime_error("these kernels are not built or this machine cannot run them");
        model->team = team_of(threads);
        model->layers.resize(num_layers);
        model->space.reset(new Workspace);
        return model.release();
    });
}

OD_API void od_model_free(Model* model) { delete model; }

// The parts are qkv, out, up (gate | up) and down; q_norm and k_norm may be null. Returns null on failure.
OD_API Model* od_model_set_layer(Model* model, int index, const od_linear* parts, const float* attn_norm, const float* mlp_norm,
                          const float* q_norm, const float* k_norm, int window) {
    return guarded([&] {
        LayerWeights& layer = model->layers.at(index);
        layer.qkv = pack(parts[0]), layer.out = pack(parts[1]), layer.up = pack(parts[2]), layer.down = pack(parts[3]);
        layer.attn_norm = copy(attn_norm, model->shape.hidden), layer.mlp_norm = copy(mlp_norm, model->shape.hidden);
        layer.q_norm = copy(q_norm, model->shape.head_dim), layer.k_norm = copy(k_norm, model->shape.head_dim);
        layer.window = window;
        return model;
    });
}

OD_API Model* od_model_set_head(Model* model, const od_linear* head, const float* final_norm) {
    return guarded([&] {
        model->head = pack(*head);
        model->final_norm = copy(final_norm, model->shape.hidden);
        return model;
    });
}

// What the products of a pass read: the layers' and the head's packed weights.
OD_API std::int64_t od_model_bytes(const Model* model) {
    std::size_t total = model->head.bytes();
    for (const LayerWeights& layer : model->layers)
        total += layer.qkv.bytes() + layer.out.bytes() + layer.up.bytes() + layer.down.bytes();
    return std::int64_t(total);
}

// Bytes of a unit's image.
OD_API std::int64_t od_model_unit_bytes(Model* model, int index) {
    std::int64_t bytes = 0;
    on_unit(*model, index, [&](LayerWeights& unit) { bytes = std::int64_t(image_bytes(unit, model->shape)); });
    return bytes;
}

OD_API Model* od_model_write_unit(Model* model, int index, void* to) {
    return guarded([&] {
        on_unit(*model, index, [&](LayerWeights& unit) {
            write_image(unit, model->shape, static_cast<std::uint8_t*>(to));
        });
        return model;
    });
}

// The unit's weights are the image at `from` (64-byte aligned) until another is lent; the caller keeps it.
OD_API Model* od_model_lend_unit(Model* model, int index, void* from) {
    return alone(model, [&] {
        on_unit(*model, index, [&](LayerWeights& unit) {
            unit = lend_image(static_cast<std::uint8_t*>(from), model->shape);
        });
    });
}

OD_API std::uint64_t od_model_read(const Model* model) { return read_weights(*model); }

OD_API Model* od_model_run(Model* model, const Pass* pass) {
    return alone(model, [&] { model->kernels->run(*model, *pass); });
}

OD_API Model* od_model_logits(Model* model, const float* hidden, int rows, int norm, float* out) {
    return alone(model, [&] { model->kernels->logits(*model, hidden, rows, norm != 0, out); });
}

OD_API Matrix* od_matrix_new(const od_linear* from) {
    return guarded([&] { return new Matrix(pack(*from)); });
}

OD_API void od_matrix_free(Matrix* matrix) { delete matrix; }

OD_API std::int64_t od_matrix_bytes(const Matrix* matrix) { return std::int64_t(matrix->bytes()); }

OD_API Matrix* od_matrix_multiply(Matrix* matrix, const float* x, int rows, float* out, int threads, const char* kernels) {
    return guarded([&] {
        const Kernels* chosen = kernels && *kernels ? find_kernels(kernels) : &best_kernels();
        if (!chosen) throw std::runtime_error("these kernels are not built or this machine cannot run them");
        return chosen->multiply(*team_of(threads), *matrix, x, rows, out), matrix;
    });
}

}  // extern "C"

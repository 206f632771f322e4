// The buffers of a pass; they only grow.
#pragma once
#include "model.h"

namespace outdraft {

constexpr int kFill = 64;  // bytes at most that are left free between two rows of a product's activations

struct Workspace {
    int rows = 0, line = 0, inputs = 0;
    Buffer<float> normed, wide, narrow, scales, sums;
    Buffer<float> half;  // the rows of a product: floats, bf16 or bytes (`Operand`)
    float *qkv = nullptr, *mixed = nullptr;  // attention's; they lie in `wide`, which the feed-forward fills behind it
    Buffer<std::int32_t> offsets;

    float* normed_row(int row) { return normed.get() + std::size_t(row) * line; }
    // Room for `count` rows of a pass, and for products of `least` inputs.
    void reserve(const Shape& shape, int count, int least = 0) {
        if (count <= rows && least <= inputs) return;
        const int most = count > rows ? count : rows;
        const std::size_t n = std::size_t(most);
        rows = 0, line = shape.hidden;  // no row until all of it is there
        const int heads = shape.heads * shape.head_dim;
        int widest = shape.hidden > shape.inner ? shape.hidden : shape.inner;
        widest = widest > heads ? widest : heads;
        widest = widest > least ? widest : least;
        const int three = heads + 2 * shape.kv_heads * shape.head_dim;
        normed = make_buffer<float>(n * shape.hidden);
        wide = make_buffer<float>(n * (2 * shape.inner > three + heads ? 2 * shape.inner : three + heads));
        qkv = wide.get(), mixed = qkv + n * three;
        narrow = make_buffer<float>(n * shape.hidden);
        const std::size_t whole = (n + 31) / 32 * 32;  // the matrix unit reads whole tiles
        half = make_buffer<float>(whole * (widest + kFill / 4));
        scales = make_buffer<float>(whole * (widest / kGroup + 1));
        offsets = make_buffer<std::int32_t>(whole * 2 * (widest / kGroup + 1));
        sums = make_buffer<float>(whole * (widest / kGroup + 1));
        rows = most, inputs = widest;
    }
};

}  // namespace outdraft

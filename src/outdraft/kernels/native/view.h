// One key/value head of one sequence's cache in one layer: where the row of a slot stands, and what it is stored in.
//
//   bf16   a row is d numbers          int8   d bytes in -127..127 and one float, the scale: max|row| / 127
//
// The scale of a row that is not finite is NaN. A row's bytes depend on that row alone, so that the cache does not remember
// which pass wrote it.
#pragma once
#include "model.h"
#include "simd.h"

namespace OD_ISA {

template <class T>
struct View {
    static constexpr bool scaled = sizeof(T) == 1;
    T *keys, *values;                  // of the layer and head
    float *key_scales, *value_scales;  // the same; null for bf16
    const std::int32_t* pages;
    std::size_t page_rows;
    int head_dim;

    View(const outdraft::Memory& m, int layer, int head, int d) : pages(m.pages), page_rows(m.page_rows), head_dim(d) {
        const std::size_t origin = layer * m.layer_rows + head * m.head_rows;
        keys = static_cast<T*>(m.keys) + origin * d, values = static_cast<T*>(m.values) + origin * d;
        key_scales = scaled ? m.key_scales + origin : nullptr, value_scales = scaled ? m.value_scales + origin : nullptr;
    }
    std::size_t row(int slot) const {
        return pages[slot / outdraft::kPage] * page_rows + slot % outdraft::kPage;
    }
    void write(int slot, const float* key, const float* value) const {
        const std::size_t at = row(slot);
        if constexpr (scaled) {
            key_scales[at] = write_bytes(keys + at * head_dim, key);
            value_scales[at] = write_bytes(values + at * head_dim, value);
        } else {
            for (int i = 0; i < head_dim; i += 16) {
                narrow(keys + at * head_dim + i, load(key + i));
                narrow(values + at * head_dim + i, load(value + i));
            }
        }
    }

private:
    float write_bytes(std::int8_t* to, const float* from) const {
        const float scale = largest_magnitude(from, head_dim) / 127.0f, inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
        for (int i = 0; i < head_dim; i += 16) narrow(to + i, nearest(load(from + i) * inverse));
        return scale;
    }
};

// 16 numbers of a row as bf16, each in a word of its own (whole numbers up to 127 fit).
template <class T>
static inline u32x16 halves(const T* p) { return (u32x16)widen(p) >> 16; }

// 32 numbers of a row as 16 words of two bf16 (whole numbers up to 127 fit).
static inline u32x16 words(const bf16* p) {
    u32x16 v;
    std::memcpy(&v, p, 64);
    return v;
}
static inline u32x16 words(const std::int8_t* p) {
    u16x16 pairs;
    std::memcpy(&pairs, p, 32);
    const i32x16 wide = (i32x16)__builtin_convertvector(pairs, u32x16);
    const u32x16 even = (u32x16)to_float((wide << 24) >> 24), odd = (u32x16)to_float((wide << 16) >> 24);
    return (even >> 16) | (odd & 0xffff0000u);
}

}  // namespace OD_ISA

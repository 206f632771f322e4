// Packing, once at load. See packed.h for the layouts.
#include "packed.h"

#include <cstring>
#include <new>
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace outdraft {

void* allocate(std::size_t bytes) {
    std::size_t edge = bytes >= (4u << 20) ? (2u << 20) : 64;
    std::size_t size = (bytes + edge - 1) / edge * edge + edge;  // a kernel may read one line beyond the end
    void* p = std::aligned_alloc(edge, size);
    if (!p) throw std::bad_alloc();
#if defined(__linux__)
    if (edge > 64) madvise(p, size, MADV_HUGEPAGE);
#endif
    std::memset(p, 0, size);
    return p;
}

Matrix pack_bf16(const std::uint16_t* weight, int num_out, int num_in) {
    Matrix m;
    m.kind = Kind::bf16, m.num_out = num_out, m.num_in = num_in;
    m.data = make_buffer<std::uint8_t>(std::size_t(m.blocks()) * kBlock * num_in * 2);
    auto* to = reinterpret_cast<std::uint16_t*>(m.data.get());
    for (int n = 0; n < num_out; n++) {
        std::uint16_t* block = to + std::size_t(n / kBlock) * kBlock * num_in;
        const std::uint16_t* row = weight + std::size_t(n) * num_in;
        for (int k = 0; k < num_in; k++) block[std::size_t(k / 2) * 2 * kBlock + (n % kBlock) * 2 + k % 2] = row[k];
    }
    return m;
}

Matrix pack_int8(const std::int8_t* weight, const float* scales, int num_out, int num_in) {
    Matrix m;
    m.kind = Kind::int8, m.num_out = num_out, m.num_in = num_in;
    m.data = make_buffer<std::uint8_t>(std::size_t(m.blocks()) * kBlock * num_in);
    m.scales = make_buffer<float>(std::size_t(m.blocks()) * kBlock);
    m.correction = make_buffer<std::int32_t>(std::size_t(m.blocks()) * kBlock);
    for (int n = 0; n < num_out; n++) {
        std::uint8_t* block = m.data.get() + std::size_t(n / kBlock) * kBlock * num_in;
        const std::int8_t* row = weight + std::size_t(n) * num_in;
        std::int32_t total = 0;
        for (int k = 0; k < num_in; k++) {
            block[std::size_t(k / 4) * 4 * kBlock + (n % kBlock) * 4 + k % 4] = std::uint8_t(row[k]);
            total += row[k];
        }
        m.scales[n] = scales[n];
        m.correction[n] = 128 * total;
    }
    return m;
}

Matrix pack_int8_groups(const std::int8_t* weight, const float* scales, int num_out, int num_in, int group) {
    Matrix m;
    m.kind = Kind::int8g, m.num_out = num_out, m.num_in = num_in;
    const int steps = num_in / kGroup;
    m.data = make_buffer<std::uint8_t>(std::size_t(m.blocks()) * kBlock * num_in);
    m.scales = make_buffer<float>(std::size_t(m.blocks()) * kBlock * steps);
    for (int n = 0; n < num_out; n++) {
        const std::int8_t* row = weight + std::size_t(n) * num_in;
        for (int step = 0; step < steps; step++) {
            const std::size_t at = std::size_t(n / kBlock) * steps + step;
            m.scales[at * kBlock + n % kBlock] = scales[std::size_t(n) * (num_in / group) + step * kGroup / group];
            for (int k = 0; k < kGroup; k++) {
                const int part = (n % kBlock) / 16, word = k / 4;
                const std::size_t byte = at * 2048 + (part * 8 + word) * 64 + (n % 16) * 4 + k % 4;
                m.data[byte] = std::uint8_t(row[step * kGroup + k] + 128);
            }
        }
    }
    return m;
}

Matrix pack_int4(const std::uint8_t* weight, const float* scales, int num_out, int num_in, int group) {
    Matrix m;
    m.kind = Kind::int4, m.num_out = num_out, m.num_in = num_in;
    const int steps = num_in / kGroup;
    m.data = make_buffer<std::uint8_t>(std::size_t(m.blocks()) * kBlock * num_in / 2);
    m.scales = make_buffer<float>(std::size_t(m.blocks()) * kBlock * steps);
    for (int n = 0; n < num_out; n++) {
        const std::uint8_t* row = weight + std::size_t(n) * num_in / 2;
        for (int step = 0; step < steps; step++) {
            const std::size_t at = std::size_t(n / kBlock) * steps + step;
            m.scales[at * kBlock + n % kBlock] = scales[std::size_t(n) * (num_in / group) + step * kGroup / group];
            for (int k = 0; k < kGroup; k++) {
                const int input = step * kGroup + k;
                const std::uint8_t value = (row[input / 2] >> (input % 2 * 4)) & 15;
                const int part = (n % kBlock) / 16, word = k / 4;
                const std::size_t byte = at * 1024 + (part * 4 + word % 4) * 64 + (n % 16) * 4 + k % 4;
                m.data[byte] |= word < 4 ? value : value << 4;
            }
        }
    }
    return m;
}

std::size_t Matrix::bytes() const {
    const std::size_t outs = std::size_t(blocks()) * kBlock, scale = sizeof(float);
    const std::size_t own_bias = bias ? outs * sizeof(float) : 0;
    switch (kind) {
        case Kind::bf16: return outs * num_in * 2 + own_bias;
        case Kind::int8: return outs * (num_in + scale + sizeof(std::int32_t)) + own_bias;
        case Kind::int8g: return outs * (num_in + num_in / kGroup * scale) + own_bias;
        default: return outs * (num_in / 2 + num_in / kGroup * scale) + own_bias;
    }
}

void set_bias(Matrix& matrix, const float* bias) {
    matrix.bias = make_buffer<float>(std::size_t(matrix.blocks()) * kBlock);
    std::memcpy(matrix.bias.get(), bias, sizeof(float) * matrix.num_out);
}

}  // namespace outdraft

// Packing, once at load. See packed.h for the layouts.
#include "packed.h"

#include <cmath>
#include <cstring>
#include <new>
#include <stdexcept>
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

void unpack_bf16(const Matrix& matrix, std::uint16_t* weight) {
    const int num_in = matrix.num_in;
    const auto* from = reinterpret_cast<const std::uint16_t*>(matrix.data.get());
    for (int n = 0; n < matrix.num_out; n++) {
        const std::uint16_t* block = from + std::size_t(n / kBlock) * kBlock * num_in;
        for (int k = 0; k < num_in; k++)
            weight[std::size_t(n) * num_in + k] = block[std::size_t(k / 2) * 2 * kBlock + (n % kBlock) * 2 + k % 2];
    }
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

namespace {

// Round to the nearest float16, ties to even; what is too small becomes 0. The caller has checked the size.
std::uint16_t to_half(float x) {
    std::uint32_t word;
    std::memcpy(&word, &x, 4);
    const std::uint16_t sign = std::uint16_t(word >> 16 & 0x8000);
    const float small = std::fabs(x) * 0x1p-112f;  // now the exponents are float16's; rounds what is below its normals
    std::memcpy(&word, &small, 4);
    return sign | std::uint16_t((word + 0xfff + (word >> 13 & 1)) >> 13);
}

// Where the groups of each strip go, and their scales.
template <class Put>
Matrix pack_groups(Kind kind, const float* scales, int num_out, int num_in, int group, Put put) {
    Matrix m;
    m.kind = kind, m.num_out = num_out, m.num_in = num_in;
    m.step = group % kWideGroup ? kGroup : kWideGroup;
    const int steps = num_in / m.step, groups = num_in / kGroup, bytes = kind == Kind::int4 ? 256 : 512;
    const std::size_t strips = std::size_t(m.blocks()) * (kBlock / 16);
    m.data = make_buffer<std::uint8_t>(strips * groups * bytes);
    m.halves = make_buffer<std::uint16_t>(strips * steps * 16);
    for (int n = 0; n < num_out; n++) {
        const std::size_t strip = n / 16;
        for (int step = 0; step < steps; step++) {
            const float scale = scales[std::size_t(n) * (num_in / group) + step * m.step / group];
            if (!(std::fabs(scale) <= 65504)) throw std::runtime_error("a scale of a quantized weight is not a float16");
            m.halves[(strip * steps + step) * 16 + n % 16] = to_half(scale);
        }
        for (int k = 0; k < num_in; k++)
            put(m.data.get() + (strip * groups + k / kGroup) * bytes + n % 16 * 4 + k % 4, k % kGroup / 4, n, k);
    }
    return m;
}

}  // namespace

Matrix pack_int8_groups(const std::int8_t* weight, const float* scales, int num_out, int num_in, int group) {
    return pack_groups(Kind::int8g, scales, num_out, num_in, group, [&](std::uint8_t* to, int word, int n, int k) {
        to[word * 64] = std::uint8_t(weight[std::size_t(n) * num_in + k] + 128);
    });
}

Matrix pack_int4(const std::uint8_t* weight, const float* scales, int num_out, int num_in, int group) {
    return pack_groups(Kind::int4, scales, num_out, num_in, group, [&](std::uint8_t* to, int word, int n, int k) {
        const std::uint8_t value = (weight[(std::size_t(n) * num_in + k) / 2] >> (k % 2 * 4)) & 15;
        to[word % 4 * 64] |= word < 4 ? value : value << 4;
    });
}

std::size_t Matrix::data_bytes() const {
    const std::size_t weights = std::size_t(blocks()) * kBlock * num_in;
    return kind == Kind::bf16 ? 2 * weights : kind == Kind::int4 ? weights / 2 : weights;
}

std::size_t Matrix::bytes() const {
    std::size_t total = 0;
    each_buffer(*this, bias != nullptr, [&](const auto& buffer, std::size_t count) { total += count * sizeof(buffer[0]); });
    return total;
}

void set_bias(Matrix& matrix, const float* bias) {
    matrix.bias = make_buffer<float>(std::size_t(matrix.blocks()) * kBlock);
    std::memcpy(matrix.bias.get(), bias, sizeof(float) * matrix.num_out);
}

}  // namespace outdraft

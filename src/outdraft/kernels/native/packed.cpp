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
    const std::size_t edge = bytes >= (4u << 20) ? (2u << 20) : 64;
    const std::size_t size = bytes + 64;  // a kernel may read one line beyond the end
    void* p = nullptr;
    if (posix_memalign(&p, edge, size)) throw std::bad_alloc();
#if defined(__linux__)
    if (edge > 64) madvise(p, size / edge * edge, MADV_HUGEPAGE);  // whole large pages: half-empty ones cost as much
#endif
    std::memset(p, 0, size);
    return p;
}

namespace {

std::uint32_t word_at(const void* from, std::size_t index) {
    std::uint32_t word;
    std::memcpy(&word, static_cast<const std::uint8_t*>(from) + 4 * index, 4);
    return word;
}

// `words` of each row to columns of `height` rows: to[block][word][row in block] = word(row, i). In pieces of a line of
// each row, so that what is written stays in the nearest cache until it is whole.
template <class Word>
void lay_columns(std::uint8_t* data, int num_rows, int words, int height, Word word) {
    constexpr int kPiece = 16;
    auto* to = reinterpret_cast<std::uint32_t*>(data);
    for (int first = 0; first < num_rows; first += height, to += std::size_t(words) * height) {
        const int stop = first + height < num_rows ? first + height : num_rows;
        for (int begin = 0; begin < words; begin += kPiece) {
            const int end = begin + kPiece < words ? begin + kPiece : words;
            for (int row = first; row < stop; row++)
                for (int i = begin; i < end; i++) to[std::size_t(i) * height + row - first] = word(row, i);
        }
    }
}

}  // namespace

Matrix pack_bf16(const std::uint16_t* weight, int num_out, int num_in) {
    Matrix m;
    m.kind = Kind::bf16, m.num_out = num_out, m.num_in = num_in;
    m.data = make_buffer<std::uint8_t>(m.data_bytes());
    const int words = num_in / 2;
    lay_columns(m.data.get(), num_out, words, kBlock,
                [&](int n, int i) { return word_at(weight, std::size_t(n) * words + i); });
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
    const int words = num_in / 4;
    lay_columns(m.data.get(), num_out, words, kBlock,
                [&](int n, int i) { return word_at(weight, std::size_t(n) * words + i); });
    for (int n = 0; n < num_out; n++) {
        std::int32_t total = 0;
        for (int k = 0; k < num_in; k++) total += weight[std::size_t(n) * num_in + k];
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

// A matrix of this kind with its scales; the weights are still to come.
Matrix with_scales(Kind kind, const float* scales, int num_out, int num_in, int group) {
    Matrix m;
    m.kind = kind, m.num_out = num_out, m.num_in = num_in;
    m.step = group % kWideGroup ? kGroup : kWideGroup;
    const int steps = num_in / m.step;
    const std::size_t strips = std::size_t(m.blocks()) * (kBlock / 16);
    m.data = make_buffer<std::uint8_t>(m.data_bytes());
    m.halves = make_buffer<std::uint16_t>(strips * steps * 16);
    for (int n = 0; n < num_out; n++)
        for (int step = 0; step < steps; step++) {
            const float scale = scales[std::size_t(n) * (num_in / group) + step * m.step / group];
            if (!(std::fabs(scale) <= 65504)) throw std::runtime_error("a scale of a quantized weight is not a float16");
            m.halves[(std::size_t(n / 16) * steps + step) * 16 + n % 16] = to_half(scale);
        }
    return m;
}

// Four halves of bytes, the lowest first, to a byte each.
std::uint32_t spread(std::uint32_t halves) {
    return (halves & 0xf) | (halves & 0xf0) << 4 | (halves & 0xf00) << 8 | (halves & 0xf000) << 12;
}

}  // namespace

Matrix pack_int8_groups(const std::int8_t* weight, const float* scales, int num_out, int num_in, int group) {
    Matrix m = with_scales(Kind::int8g, scales, num_out, num_in, group);
    const int words = num_in / 4;
    lay_columns(m.data.get(), num_out, words, 16,
                [&](int n, int i) { return word_at(weight, std::size_t(n) * words + i) ^ 0x80808080u; });
    return m;
}

Matrix pack_int4(const std::uint8_t* weight, const float* scales, int num_out, int num_in, int group) {
    Matrix m = with_scales(Kind::int4, scales, num_out, num_in, group);
    const int words = num_in / 8;  // of a row: four for each group of 32, of 16 low halves and 16 high ones
    const auto* from = reinterpret_cast<const std::uint8_t*>(weight);
    lay_columns(m.data.get(), num_out, words, 16, [&](int n, int i) {
        const std::uint8_t* here = from + std::size_t(n) * (num_in / 2) + i / 4 * 16 + i % 4 * 2;
        return spread(here[0] | here[1] << 8) | spread(here[8] | here[9] << 8) << 4;
    });
    return m;
}

Matrix pack_parts(const od_blocks* parts, int count, int num_out, int num_in) {
    Matrix m;
    m.kind = Kind::blocks, m.num_out = num_out, m.num_in = num_in;
    int first = 0, block = 0;
    for (int i = 0; i < count; i++) {
        if (parts[i].type < 0 || parts[i].type >= kBlockTypes) throw std::runtime_error("this block format is not known");
        BlockPart part{Block(parts[i].type), first, parts[i].num_out, block, parts[i].factor, nullptr};
        const Format& format = format_of(part.type);
        if (num_in % format.span) throw std::runtime_error("rows do not divide into blocks");
        const std::size_t strip = format.strip_bytes(num_in), row = std::size_t(num_in / format.span) * format.stored;
        part.data = make_buffer<std::uint8_t>(part.blocks() * (kBlock / 16) * strip);
        for (int n = 0; n < part.num_out; n++)
            pack_blocks(part.type, parts[i].rows + n * row, num_in, n % 16, part.data.get() + n / 16 * strip);
        first += part.num_out, block += part.blocks();
        m.parts.push_back(std::move(part));
    }
    if (first != num_out || count > kMostParts) throw std::runtime_error("the parts of a weight are not its outputs");
    return m;
}

void read_row(const Matrix& m, int row, float* out) {
    const int lane = row % 16, bits = m.kind == Kind::int4 ? 4 : 8;
    if (m.kind == Kind::blocks) {
        std::size_t i = m.parts.size() - 1;
        while (m.parts[i].first_out > row) i--;
        const BlockPart& part = m.parts[i];
        const int within = row - part.first_out;
        const std::size_t strip = format_of(part.type).strip_bytes(m.num_in);
        read_strip(part.type, part.data.get() + within / 16 * strip, within % 16, m.num_in, out);
    } else if (m.is_grouped()) {
        const std::uint8_t* codes = m.strip(row / 16);
        for (int k = 0; k < m.num_in; k += kGroup, codes += 64 * bits)
            read_codes(codes, bits, m.strip_scales(row / 16)[k / m.step * 16 + lane], lane, out + k);
    } else if (m.kind == Kind::bf16) {
        const auto* from = reinterpret_cast<const std::uint16_t*>(m.data.get()) + std::size_t(row / kBlock) * kBlock * m.num_in;
        for (int k = 0; k < m.num_in; k++) {
            const std::uint32_t word = std::uint32_t(from[(k / 2 * kBlock + row % kBlock) * 2 + k % 2]) << 16;
            std::memcpy(out + k, &word, 4);
        }
    } else throw std::runtime_error("rows are not read of integers with one scale for all inputs");
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

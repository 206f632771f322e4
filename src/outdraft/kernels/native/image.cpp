// See image.h.
#include "image.h"

#include <cstring>
#include <stdexcept>

namespace outdraft {

namespace {

constexpr std::size_t kLine = 64;
constexpr std::int32_t kMark = 0x0d1a7e04;  // the last byte counts formats

struct MatrixHeader {
    std::int32_t kind, num_out, num_in, step, biased, parts[kMostParts][2];  // of parts: format, outputs; no outputs: none
    float factors[kMostParts];
};
struct Header {
    std::int32_t mark, window, turns, normed[6];
    MatrixHeader matrices[4];
};

// The parts of a matrix, still without their weights.
template <class Require>
std::vector<BlockPart> parts_of(const MatrixHeader& told, Require require) {
    std::vector<BlockPart> parts;
    int first = 0, block = 0;
    for (int i = 0; i < kMostParts; i++) {
        const auto& [type, num_out] = told.parts[i];
        if (!num_out) break;
        require(type >= 0 && type < kBlockTypes && num_out > 0 && num_out <= told.num_out - first);
        require(told.num_in % format_of(Block(type)).span == 0);
        parts.push_back(BlockPart{Block(type), first, num_out, block, told.factors[i], nullptr});
        first += num_out, block += parts.back().blocks();
    }
    require(!parts.empty() && first == told.num_out);
    return parts;
}

std::size_t lines(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

template <class Layer, class Work>
void each_norm(Layer& layer, const Shape& shape, Work work) {
    const int width = shape.norm_size(shape.hidden);
    work(layer.attn_norm, 0, width), work(layer.mlp_norm, 1, width);
    work(layer.attn_post, 2, width), work(layer.mlp_post, 3, width);
    work(layer.q_norm, 4, shape.head_norm_size(shape.heads)), work(layer.k_norm, 5, shape.head_norm_size(shape.kv_heads));
}

// Calls work(buffer, entries) for everything that the layer holds.
template <class Work>
void each_part(const LayerWeights& layer, const Shape& shape, Work work) {
    each_matrix(layer, [&](const Matrix& m, int) { each_buffer(m, m.bias != nullptr, work); });
    each_norm(layer, shape, [&](const Buffer<float>& norm, int, int size) {
        if (norm) work(norm, std::size_t(size));
    });
}

}  // namespace

std::size_t image_bytes(const LayerWeights& layer, const Shape& shape) {
    std::size_t total = lines(sizeof(Header));
    each_part(layer, shape, [&](const auto& buffer, std::size_t count) { total += lines(count * sizeof(buffer[0])); });
    return total + kLine;  // a kernel may read one line beyond the end
}

void write_image(const LayerWeights& layer, const Shape& shape, std::uint8_t* to) {
    std::memset(to, 0, image_bytes(layer, shape));
    Header header{};
    header.mark = kMark, header.window = layer.window, header.turns = layer.turns;
    each_matrix(layer, [&](const Matrix& m, int i) {
        MatrixHeader& own = header.matrices[i];
        own = MatrixHeader{std::int32_t(m.kind), m.num_out, m.num_in, m.step, m.bias != nullptr, {}, {}};
        for (std::size_t p = 0; p < m.parts.size(); p++)
            own.parts[p][0] = std::int32_t(m.parts[p].type), own.parts[p][1] = m.parts[p].num_out, own.factors[p] = m.parts[p].factor;
    });
    each_norm(layer, shape, [&](const Buffer<float>& norm, int i, int) { header.normed[i] = norm != nullptr; });
    std::memcpy(to, &header, sizeof header);
    to += lines(sizeof header);
    each_part(layer, shape, [&](const auto& buffer, std::size_t count) {
        if (count) std::memcpy(to, buffer.get(), count * sizeof(buffer[0]));
        to += lines(count * sizeof(buffer[0]));
    });
}

LayerWeights lend_image(std::uint8_t* from, std::size_t bytes, const Shape& shape, bool is_head) {
    const auto require = [](bool right) {
        if (!right) throw std::runtime_error("these bytes are no packed layer of this model, or cut short");
    };
    Header header;
    std::size_t at = lines(sizeof header);
    require(bytes >= at && reinterpret_cast<std::uintptr_t>(from) % kLine == 0);
    std::memcpy(&header, from, sizeof header);
    require(header.mark == kMark && header.window >= 0 && header.turns >= -1);
    require((header.normed[0] && (is_head || header.normed[1])) || (header.normed[2] && header.normed[3]));
    const auto take = [&](auto& buffer, std::size_t count) {
        using Held = std::remove_reference_t<decltype(buffer)>;
        const std::size_t size = lines(count * sizeof(buffer[0]));
        require(size + kLine <= bytes - at);
        buffer = Held(reinterpret_cast<typename Held::pointer>(from + at), Free{false});
        at += size;
    };
    LayerWeights layer;
    layer.window = header.window, layer.turns = header.turns;
    const Sizes sizes = is_head ? head_sizes(shape) : layer_sizes(shape);
    each_matrix(layer, [&](Matrix& m, int i) {
        const MatrixHeader& told = header.matrices[i];
        require(told.num_out == sizes[i].num_out && told.num_in == sizes[i].num_in);
        require(told.kind >= 0 && told.kind <= int(Kind::blocks) && (told.step == kGroup || told.step == kWideGroup));
        m.kind = Kind(told.kind), m.num_out = told.num_out, m.num_in = told.num_in, m.step = told.step;
        require(!m.is_grouped() || m.num_in % m.step == 0);
        if (m.kind == Kind::blocks) m.parts = parts_of(told, require);
        each_buffer(m, told.biased != 0, take);
    });
    each_norm(layer, shape, [&](Buffer<float>& norm, int i, int size) {
        if (header.normed[i]) take(norm, std::size_t(size));
    });
    return layer;
}

std::uint64_t checksum(const std::uint8_t* from, std::size_t bytes) {
    constexpr int kLanes = 8;  // side by side: one multiplication waits for the one before it
    constexpr std::uint64_t kFactor = 0x9e3779b97f4a7c15;  // odd, so that no two words give the same product
    const auto mixed = [](std::uint64_t sum, std::uint64_t word) {
        sum ^= word;
        return (sum << 29 | sum >> 35) * kFactor;
    };
    std::uint64_t sums[kLanes] = {};
    for (std::size_t at = 0; at < bytes; at += kLine) {
        std::uint64_t words[kLanes] = {};  // what is missing of the last line counts as zeros
        std::memcpy(words, from + at, at + kLine <= bytes ? kLine : bytes - at);
        for (int i = 0; i < kLanes; i++) sums[i] = mixed(sums[i], words[i]);
    }
    std::uint64_t all = bytes;
    for (const std::uint64_t sum : sums) all = mixed(all, sum);
    return all;
}

}  // namespace outdraft

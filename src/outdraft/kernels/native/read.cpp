// Reads a model's packed weights and does nothing with them: the time that no pass over them can beat.
#include "read.h"

#include <cstring>

namespace outdraft {

namespace {

typedef std::uint64_t u64x8 __attribute__((vector_size(64)));
constexpr int kStreams = 4;  // read side by side: one alone leaves memory idle

// The exclusive or of all words.
std::uint64_t read(const std::uint8_t* data, std::size_t bytes) {
    const std::size_t part = bytes / kStreams / 256 * 256;
    u64x8 sums[kStreams] = {};
    for (std::size_t i = 0; i < part; i += 256)
        for (int s = 0; s < kStreams; s++)
            for (int line = 0; line < 256; line += 64) {
                u64x8 v;
                std::memcpy(&v, data + s * part + i + line, 64);
                sums[s] ^= v;
            }
    u64x8 all = (sums[0] ^ sums[1]) ^ (sums[2] ^ sums[3]);
    for (std::size_t i = kStreams * part; i + 64 <= bytes; i += 64) {
        u64x8 v;
        std::memcpy(&v, data + i, 64);
        all ^= v;
    }
    return all[0] ^ all[1] ^ all[2] ^ all[3] ^ all[4] ^ all[5] ^ all[6] ^ all[7];
}

}  // namespace

std::uint64_t read_weights(const Model& model) {
    std::vector<std::uint64_t> found(model.team->size());
    model.team->run([&](int id) {
        const auto share = [&](const Matrix& m, int) {
            each_buffer(m, false, [&](const auto& buffer, std::size_t count) {
                const std::size_t bytes = count * sizeof(buffer[0]) / model.team->size() / 64 * 64;
                found[id] ^= read(reinterpret_cast<const std::uint8_t*>(buffer.get()) + id * bytes, bytes);
            });
        };
        for (const LayerWeights& layer : model.layers) each_matrix(layer, share);
        each_matrix(model.head, share);
    });
    std::uint64_t all = 0;
    for (const std::uint64_t one : found) all ^= one;
    return all;
}

}  // namespace outdraft

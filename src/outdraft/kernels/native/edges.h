// The children of many nodes, by token, in one table: (node, token) -> node. Open addressing, linear probing; erasing
// moves later entries back, so a table that things come to and go from never fills with graves.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace outdraft {

class Edges {
public:
    Edges() : keys_(16), values_(16, none) {}

    // The child, or -1.
    std::int32_t get(std::int32_t node, std::int32_t token) const { return values_[slot(key(node, token))]; }

    void set(std::int32_t node, std::int32_t token, std::int32_t child) {
        if (10 * (size_ + 1) > 7 * keys_.size()) grow();
        const std::uint64_t wanted = key(node, token);
        const std::size_t at = slot(wanted);
        size_ += values_[at] == none;
        keys_[at] = wanted, values_[at] = child;
    }

    void erase(std::int32_t node, std::int32_t token) {
        std::size_t hole = slot(key(node, token));
        if (values_[hole] == none) return;
        size_--;
        for (std::size_t at = next(hole); values_[at] != none; at = next(at)) {
            const std::size_t home = place(keys_[at]);
            const bool stays = hole <= at ? hole < home && home <= at : hole < home || home <= at;
            if (stays) continue;
            keys_[hole] = keys_[at], values_[hole] = values_[at], hole = at;
        }
        values_[hole] = none;
    }

    std::size_t bytes() const { return keys_.size() * (sizeof(std::uint64_t) + sizeof(std::int32_t)); }

private:
    static constexpr std::int32_t none = -1;

    static std::uint64_t key(std::int32_t node, std::int32_t token) {
        return std::uint64_t(std::uint32_t(node)) << 32 | std::uint32_t(token);
    }
    std::size_t place(std::uint64_t key) const {
        key = (key ^ key >> 32) * 0x9e3779b97f4a7c15ull;  // the golden ratio, as usual
        return (key ^ key >> 29) & (keys_.size() - 1);
    }
    std::size_t next(std::size_t at) const { return (at + 1) & (keys_.size() - 1); }
    std::size_t slot(std::uint64_t key) const {
        std::size_t at = place(key);
        while (values_[at] != none && keys_[at] != key) at = next(at);
        return at;
    }
    void grow() {
        std::vector<std::uint64_t> keys(keys_.size() * 2);
        std::vector<std::int32_t> values(keys.size(), none);
        keys.swap(keys_), values.swap(values_);
        for (std::size_t i = 0; i < keys.size(); i++) {
            if (values[i] == none) continue;
            const std::size_t at = slot(keys[i]);
            keys_[at] = keys[i], values_[at] = values[i];
        }
    }

    std::vector<std::uint64_t> keys_;
    std::vector<std::int32_t> values_;
    std::size_t size_ = 0;
};

}  // namespace outdraft

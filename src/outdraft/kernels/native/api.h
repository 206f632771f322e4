// What the files of the C interface share. Nothing is thrown across it.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>

#include "model.h"

#define OD_API __attribute__((visibility("default")))

extern "C" struct od_linear {  // what a matrix is made from
    int bits, num_out, num_in, group;  // bits 16, 8 or 4; group 0: one scale an output
    const void* weight;                // [N, K] bf16 or int8, or [N, K / 2] nibbles
    const float* scales;               // [N] or [N, K / group]; null for bf16
    const float* bias;                 // [N] or null
    const od_blocks* parts;            // in place of all but bias; null: none
    int num_parts;
};

extern "C" struct od_norms {  // of a layer (LayerWeights); what is null is not there
    const float *attn, *mlp, *attn_post, *mlp_post, *q, *k;
};

extern "C" struct od_entrance {  // Entrance of guesser.h; what is null is not there
    od_linear fusion, join;      // no weight: none
    const float *tap_norms, *token_norm, *feature_norm;
    int taps, tap_width, one_tap_norm, origin, norms_carried;
    float tap_eps;
};

namespace outdraft {

inline thread_local std::string last_error;

// For measurements: so many threads, whatever was measured; 0: as measured. OUTDRAFT_PACE=off begins with the most.
inline std::atomic<int>& fixed_threads() {
    static const char* asked = std::getenv("OUTDRAFT_PACE");
    static std::atomic<int> count{asked && std::strcmp(asked, "off") == 0 ? 1 << 20 : 0};
    return count;
}

// While it lives, a model (and who computes beside it) has the team that was quickest for such work of late.
class Paced {
public:
    enum Kind { layers, head, feed, chain };
    Paced(Model& model, Kind kind, int rows, int parts = 1, Model* beside = nullptr)
        : pace_(model.crews.pace()), fixed_(fixed_threads().load(std::memory_order_relaxed)), parts_(parts > 0 ? parts : 1),
          began_(std::chrono::steady_clock::now()) {
        const int threads = fixed_ ? std::min(fixed_, model.crews.most()) : pace_.begin(kind, rows);
        model.team = model.crews.of(threads);
        if (beside) beside->team = model.team;
    }
    void count(int parts) { parts_ = parts > 0 ? parts : 1; }
    ~Paced() {
        if (fixed_) return;  // it would report another number than was asked for
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began_;
        pace_.end(took.count() / parts_);
    }

private:
    Pace& pace_;
    const int fixed_;
    int parts_;
    const std::chrono::steady_clock::time_point began_;
};

template <class Make>
auto guarded(Make make) -> decltype(make()) {
    try {
        return make();
    } catch (const std::exception& error) {
        last_error = error.what();
        return nullptr;
    }
}

// The kernels of this name; null or empty: the best for this machine.
inline const Kernels& chosen(const char* name) {
    const Kernels* kernels = name && *name ? find_kernels(name) : &best_kernels();
    if (!kernels) throw std::runtime_error("these kernels are not built or this machine cannot run them");
    return *kernels;
}

// Whether a pass may compute with it.
inline void require_weights(const LayerWeights& unit, const char* name) {
    if (!unit.qkv.num_out) throw std::runtime_error(std::string("weights are missing: ") + name);
}

inline Buffer<float> copy(const float* from, int size) {
    if (!from) return nullptr;
    auto to = make_buffer<float>(size);
    std::memcpy(to.get(), from, sizeof(float) * size);
    return to;
}

inline Matrix pack(const od_linear& from) {
    Matrix m;
    if (from.num_parts) m = pack_parts(from.parts, from.num_parts, from.num_out, from.num_in);
    else if (from.bits == 16) m = pack_bf16(static_cast<const std::uint16_t*>(from.weight), from.num_out, from.num_in);
    else if (from.bits == 8 && !from.group)
        m = pack_int8(static_cast<const std::int8_t*>(from.weight), from.scales, from.num_out, from.num_in);
    else if (from.bits == 8)
        m = pack_int8_groups(static_cast<const std::int8_t*>(from.weight), from.scales, from.num_out, from.num_in, from.group);
    else
        m = pack_int4(static_cast<const std::uint8_t*>(from.weight), from.scales, from.num_out, from.num_in,
                      from.group ? from.group : from.num_in);
    if (from.bias) set_bias(m, from.bias);
    return m;
}
inline Matrix pack(const od_linear& from, Size size) {
    if (from.num_out != size.num_out || from.num_in != size.num_in)
        throw std::runtime_error("a weight of " + std::to_string(from.num_out) + " outputs and " + std::to_string(from.num_in) +
                                 " inputs stands where the model has " + std::to_string(size.num_out) + " and " +
                                 std::to_string(size.num_in));
    return pack(from);
}

}  // namespace outdraft

// What rows of logits are compared by (row_loss.h).
#pragma once
#include <cstdint>

namespace outdraft {

struct RowLosses {
    int rows, size;
    int is_narrow;                                   // q and gradient: bf16, else float
    float kl, cross, tv, log_accepted, hybrid, text;  // the losses' weights
    const float* p;                                  // [any, size] the target's logits
    const float* whole;                              // [any] the logarithm of what the target's whole vocabulary sums up to
    const std::int64_t* at;                          // [rows] which of these a row is compared with
    const void* q;                                   // [rows, size] the draft's logits
    const std::int64_t* said;                        // [rows] the text's own token, -1: none of these
    const float* heavy;                              // [rows] what a row's gradient is multiplied by
    float *losses, *mass;                            // [rows] out: the loss; sum min(p, q), p over the whole vocabulary
    void* gradient;                                  // [rows, size] out, or null
};

}  // namespace outdraft

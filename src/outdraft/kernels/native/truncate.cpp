// What is left of a distribution. Compiled once, for any machine: the standard library's templates must not exist in several
// instruction sets under one name.
#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "guesser.h"

namespace outdraft {

namespace {

// In eight sums side by side, since one alone waits for every addition.
double sum(const float* x, int size) {
    double lanes[8] = {};
    int i = 0;
    for (; i + 8 <= size; i += 8)
        for (int j = 0; j < 8; j++) lanes[j] += x[i + j];
    for (; i < size; i++) lanes[0] += x[i];
    return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

}  // namespace

// Ties at the edge of top-k all stay; top-p takes the most probable until they suffice, of equal ones the first.
void truncate(float* distribution, int size, const Distribution& how) {
    if (how.min_p > 0) {
        const float least = how.min_p * *std::max_element(distribution, distribution + size);
        for (int i = 0; i < size; i++) distribution[i] = distribution[i] < least ? 0 : distribution[i];
    }
    if (how.top_k > 0 && how.top_k < size) {
        std::vector<float> copy(distribution, distribution + size);
        std::nth_element(copy.begin(), copy.begin() + how.top_k - 1, copy.end(), std::greater<float>());
        const float edge = copy[how.top_k - 1];
        for (int i = 0; i < size; i++) distribution[i] = distribution[i] < edge ? 0 : distribution[i];
    }
    if (how.top_p < 1) {
        const double total = sum(distribution, size), enough = double(how.top_p) * total;
        // All that are no larger than this have half the mass that may go at most, so none of them is needed.
        const float small = float(0.5 * (1 - double(how.top_p)) * total / size);
        std::vector<std::pair<float, int>> heap;  // most probable first, of equal ones the first
        for (int i = 0; i < size; i++)
            if (distribution[i] > small) heap.emplace_back(distribution[i], -i);
            else distribution[i] = 0;
        std::make_heap(heap.begin(), heap.end());
        double mass = 0;
        auto end = heap.end();
        for (; end != heap.begin() && mass < enough; --end) {
            mass += heap.front().first;
            std::pop_heap(heap.begin(), end);
        }
        for (auto left = heap.begin(); left != end; ++left) distribution[-left->second] = 0;
    }
    const float share = float(1 / sum(distribution, size));
    for (int i = 0; i < size; i++) distribution[i] *= share;
}

}  // namespace outdraft

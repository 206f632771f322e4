// What is left of a law. Compiled once, for any machine: the standard library's templates must not exist in several
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
void truncate(float* law, int size, const Law& how) {
    if (how.min_p > 0) {
        const float least = how.min_p * *std::max_element(law, law + size);
        for (int i = 0; i < size; i++) law[i] = law[i] < least ? 0 : law[i];
    }
    if (how.top_k > 0 && how.top_k < size) {
        std::vector<float> copy(law, law + size);
        std::nth_element(copy.begin(), copy.begin() + how.top_k - 1, copy.end(), std::greater<float>());
        const float edge = copy[how.top_k - 1];
        for (int i = 0; i < size; i++) law[i] = law[i] < edge ? 0 : law[i];
    }
    if (how.top_p < 1) {
        const double total = sum(law, size), enough = double(how.top_p) * total;
        // All that are no larger than this have half the mass that may go at most, so none of them is needed.
        const float small = float(0.5 * (1 - double(how.top_p)) * total / size);
        std::vector<std::pair<float, int>> heap;  // most probable first, of equal ones the first
        for (int i = 0; i < size; i++)
            if (law[i] > small) heap.emplace_back(law[i], -i);
            else law[i] = 0;
        std::make_heap(heap.begin(), heap.end());
        double mass = 0;
        auto end = heap.end();
        for (; end != heap.begin() && mass < enough; --end) {
            mass += heap.front().first;
            std::pop_heap(heap.begin(), end);
        }
        for (auto left = heap.begin(); left != end; ++left) law[-left->second] = 0;
    }
    const float share = float(1 / sum(law, size));
    for (int i = 0; i < size; i++) law[i] *= share;
}

}  // namespace outdraft

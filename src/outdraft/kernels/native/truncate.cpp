// What is left of a law. Compiled once, for any machine: the standard library's templates must not exist in several
// instruction sets under one name.
#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "guesser.h"

namespace outdraft {

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
        const double total = std::accumulate(law, law + size, 0.0), enough = double(how.top_p) * total;
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
    const float share = float(1 / std::accumulate(law, law + size, 0.0));
    for (int i = 0; i < size; i++) law[i] *= share;
}

}  // namespace outdraft

// What is left of a distribution. Compiled once, for any machine: the standard library's templates must not exist in several
// instruction sets under one name.
#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "guesser.h"

namespace outdraft {

namespace {

// Loops run in eight lanes side by side, since one alone waits for every step.
template <class T, class Step>
void lanes_of(const float* x, int size, T (&lanes)[8], Step step) {
    int i = 0;
    for (; i + 8 <= size; i += 8)
        for (int j = 0; j < 8; j++) lanes[j] = step(lanes[j], x[i + j]);
    for (; i < size; i++) lanes[0] = step(lanes[0], x[i]);
}
template <class Value>
double sum(const float* x, int size, Value value) {
    double lanes[8] = {};
    lanes_of(x, size, lanes, [&](double so_far, float one) { return so_far + value(one); });
    return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}
double sum(const float* x, int size) { return sum(x, size, [](float one) { return one; }); }
float largest(const float* x, int size) {
    float lanes[8] = {};
    lanes_of(x, size, lanes, [](float so_far, float one) { return one > so_far ? one : so_far; });
    return *std::max_element(lanes, lanes + 8);
}

// A bound above which there is enough, or `least`: most of a vocabulary is far below it, and need not be put in order.
template <class Value>
float bound(const float* x, int size, float least, double enough, Value value) {
    const float top = largest(x, size);
    for (float edge = top / 16; edge > least && edge > 1e-8f * top; edge /= 16)
        if (sum(x, size, [&](float one) { return one > edge ? value(one) : 0.0f; }) >= enough) return edge;
    return least;
}

// Visits what is above the bound, in order of place.
template <class Visit>
void each_above(const float* x, int size, float edge, Visit visit) {
    constexpr int kRun = 64;
    for (int first = 0; first < size; first += kRun) {
        const int stop = size - first < kRun ? size : first + kRun;
        int any = stop - first < kRun;
        if (!any)
            for (int j = 0; j < kRun; j++) any |= x[first + j] > edge;
        if (any)
            for (int i = first; i < stop; i++)
                if (x[i] > edge) visit(i);
    }
}

}  // namespace

// Ties at the edge of top-k all stay; top-p takes the most probable until they suffice, of equal ones the first.
void truncate(float* distribution, int size, const Distribution& how) {
    if (how.min_p > 0) {
        const float least = how.min_p * largest(distribution, size);
        for (int i = 0; i < size; i++) distribution[i] = distribution[i] < least ? 0 : distribution[i];
    }
    if (how.top_k > 0 && how.top_k < size) {
        std::vector<float> first;
        const float low = bound(distribution, size, 0, how.top_k, [](float) { return 1.0f; });
        each_above(distribution, size, low, [&](int i) { first.push_back(distribution[i]); });
        float edge = 0;  // of fewer all stay
        if (int(first.size()) >= how.top_k) {
            std::nth_element(first.begin(), first.begin() + how.top_k - 1, first.end(), std::greater<float>());
            edge = first[how.top_k - 1];
        }
        for (int i = 0; i < size; i++) distribution[i] = distribution[i] < edge ? 0 : distribution[i];
    }
    if (how.top_p < 1) {
        const double total = sum(distribution, size), enough = double(how.top_p) * total;
        // All that are no larger than this have half the mass that may go at most, so none of them is needed.
        const float small = float(0.5 * (1 - double(how.top_p)) * total / size);
        const float low = bound(distribution, size, small, enough * (1 + 1e-9), [](float one) { return one; });
        std::vector<std::pair<float, int>> heap;  // most probable first, of equal ones the first
        each_above(distribution, size, low, [&](int i) { heap.emplace_back(distribution[i], -i); });
        for (int i = 0; i < size; i++) distribution[i] = distribution[i] > low ? distribution[i] : 0;
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

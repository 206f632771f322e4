// SA-IS: suffixes sorted in linear time by induction from a few of them (Nong, Zhang and Chan, "Two efficient algorithms
// for linear time suffix array construction", 2011, https://doi.org/10.1109/TC.2010.188).
//
//     a suffix is S if smaller than its right neighbour, else L; "leftmost S" (LMS) if S after an L
//     1. sort the LMS substrings by induction   2. name them   3. sort the string of names, by recursion if names repeat
//     4. induce the order of all suffixes from that of the LMS suffixes
//
// The string of names and its order live inside the answer's own array.
#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <vector>

#include "suffix_array.h"

namespace outdraft {
namespace {

using Int = std::int32_t;

class Sort {
public:
    Sort(const Int* text, Int n, Int alphabet, Int* order, SortWatch* watch, double whole)
        : text_(text), order_(order), n_(n), alphabet_(alphabet), watch_(watch), whole_(whole), smaller_(n) {}

    void run() {
        if (n_ == 0) return;
        for (Int i = n_ - 1; i-- > 0;)
            smaller_[i] = text_[i] < text_[i + 1] || (text_[i] == text_[i + 1] && smaller_[i + 1]);
        std::fill(order_, order_ + n_, -1);
        set_ends(true);
        for (Int i = 1; i < n_; i++)
            if (lms(i)) order_[--ends_[text_[i]]] = i;
        induce();
        const Int count = sort_lms();
        std::fill(order_ + count, order_ + n_, -1);
        set_ends(true);
        for (Int i = count; i-- > 0;) {
            const Int at = order_[i];
            order_[i] = -1;
            order_[--ends_[text_[at]]] = at;
        }
        induce();
    }

private:
    bool lms(Int i) const { return i > 0 && smaller_[i] && !smaller_[i - 1]; }

    // Where each token's bucket starts, or stops.
    void set_ends(bool stops) {
        ends_.assign(alphabet_, 0);
        for (Int i = 0; i < n_; i++) ends_[text_[i]]++;
        Int sum = 0;
        for (Int& end : ends_) {
            const Int size = end;
            end = stops ? sum + size : sum;
            sum += size;
        }
    }

    // From the LMS suffixes in their places: all L suffixes, left to right, then all S suffixes, right to left.
    void induce() {
        set_ends(false);
        order_[ends_[text_[n_ - 1]]++] = n_ - 1;  // the end of the text is the smallest suffix of all
        for (Int i = 0; i < n_; i++) {
            tick(i);
            const Int before = order_[i] - 1;
            if (before >= 0 && !smaller_[before]) order_[ends_[text_[before]]++] = before;
        }
        set_ends(true);
        for (Int i = n_; i-- > 0;) {
            tick(i);
            const Int before = order_[i] - 1;
            if (before >= 0 && smaller_[before]) order_[--ends_[text_[before]]] = before;
        }
    }

    // The LMS suffixes, in order, at the front of the array; how many.
    Int sort_lms() {
        Int count = 0;
        for (Int i = 0; i < n_; i++)
            if (lms(order_[i])) order_[count++] = order_[i];
        Int* names = order_ + count;  // two LMS suffixes are never neighbours: half a place each suffices
        std::fill(names, order_ + n_, -1);
        Int name = -1;
        for (Int i = 0; i < count; i++) {
            name += i == 0 || !same(order_[i - 1], order_[i]);
            names[order_[i] / 2] = name;
        }
        Int* packed = order_ + n_ - count;
        for (Int from = n_ - 1, to = n_ - 1, left = count; left > 0; from--)
            if (order_[from] >= 0) order_[to--] = order_[from], left--;
        std::vector<Int>().swap(ends_);  // the recursion needs its own
        if (name + 1 < count) Sort(packed, count, name + 1, order_, watch_, whole_).run();
        else
            for (Int i = 0; i < count; i++) order_[packed[i]] = i;
        for (Int i = 1, to = 0; i < n_; i++)
            if (lms(i)) packed[to++] = i;
        for (Int i = 0; i < count; i++) order_[i] = packed[order_[i]];
        return count;
    }

    // Whether the LMS substrings that start at a and b are the same, both ends included.
    bool same(Int a, Int b) const {
        for (Int i = 0;; i++) {
            if (a + i == n_ || b + i == n_) return false;
            if (text_[a + i] != text_[b + i] || smaller_[a + i] != smaller_[b + i]) return false;
            if (i > 0 && (lms(a + i) || lms(b + i))) return lms(a + i) && lms(b + i);
        }
    }

    void tick(Int i) const {
        constexpr Int often = 1 << 20;
        if (i % often || !watch_) return;
        if (watch_->stop) throw std::runtime_error("stopped");
        watch_->share = std::min(0.99, watch_->share + std::min(often, n_) / whole_);
    }

    const Int* text_;
    Int* order_;
    Int n_, alphabet_;
    SortWatch* watch_;
    double whole_;
    std::vector<bool> smaller_;
    std::vector<Int> ends_;
};

}  // namespace

void sort_suffixes(const Int* tokens, Int n, Int alphabet, Int* order, SortWatch* watch) {
    if (std::any_of(tokens, tokens + n, [&](Int token) { return token < 0 || token >= alphabet; }))
        throw std::runtime_error("a token lies outside of the alphabet");
    Sort(tokens, n, alphabet, order, watch, 6.0 * n).run();  // four scans of the text, half as many of the names below
}

}  // namespace outdraft

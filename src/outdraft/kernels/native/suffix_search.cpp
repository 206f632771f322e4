// What followed the end of a context in a sorted text: binary search, then the heaviest continuations.
#include <algorithm>
#include <queue>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "suffix_array.h"

namespace outdraft {
namespace {

using Int = std::int32_t;

struct Range {
    Int first, last;  // places [first, last) of the order
};

// A place of the order, which is a start in the text.
Int checked(const Corpus& corpus, Int start) {
    if (start < 0 || start >= corpus.size) throw std::runtime_error("the order of the suffixes is damaged: sort them again");
    return start;
}

// Where the suffixes stand that begin with `span`: O(length log size).
Range find(const Corpus& corpus, const Int* span, int length) {
    const auto compare = [&](Int start) {  // of a suffix with the span: -1, 0 (begins with it), 1
        checked(corpus, start);
        for (int i = 0; i < length; i++) {
            if (start + i == corpus.size || corpus.tokens[start + i] < span[i]) return -1;
            if (corpus.tokens[start + i] > span[i]) return 1;
        }
        return 0;
    };
    const Int* stop = corpus.order + corpus.size;
    const Int* first = std::partition_point(corpus.order, stop, [&](Int start) { return compare(start) < 0; });
    const Int* last = std::partition_point(first, stop, [&](Int start) { return compare(start) == 0; });
    return {Int(first - corpus.order), Int(last - corpus.order)};
}

struct Node {
    Int first, last, depth, place;  // hits [first, last) share `depth` tokens; `place` in the answer, -1 the root
    bool operator<(const Node& other) const {  // the heaviest first, of equal ones the one that came first
        return std::make_tuple(last - first, -born) < std::make_tuple(other.last - other.first, -other.born);
    }
    Int token, parent, born;
};

}  // namespace

void look_up(const Corpus& corpus, const CorpusQuery& query, CorpusAnswer& answer) {
    answer.nodes = 0, answer.hits = 0, answer.match = 0;
    Range found{0, 0};
    // What a longer end of the context has met, a shorter one has too: bisection for the longest.
    int low = query.min_match, high = std::min(query.max_match, query.length);
    while (low <= high) {
        const int length = (low + high) / 2;
        const Range range = find(corpus, query.context + query.length - length, length);
        if (range.first < range.last) found = range, answer.match = length, low = length + 1;
        else high = length - 1;
    }
    answer.hits = found.last - found.first;
    const Int count = Int(std::min<std::int64_t>(answer.hits, query.max_hits));
    std::vector<Int> hits(count);  // evenly spread over the range, so still in order
    for (Int i = 0; i < count; i++) hits[i] = checked(corpus, corpus.order[found.first + answer.hits * i / count]);
    Int born = 0;
    std::priority_queue<Node> open;
    const auto open_children = [&](const Node& node) {
        if (node.depth >= query.depth) return;
        for (Int i = node.first; i < node.last;) {
            const auto token_at = [&](Int hit) {
                const std::int64_t at = std::int64_t(hits[hit]) + answer.match + node.depth;
                return at < corpus.size ? corpus.tokens[at] : corpus.end;
            };
            const Int token = token_at(i);
            Int next = i;
            while (next < node.last && token_at(next) == token) next++;
            if (token != corpus.end) open.push({i, next, node.depth + 1, 0, token, node.place, born++});
            i = next;
        }
    };
    open_children({0, count, 0, -1, 0, 0, 0});
    while (!open.empty() && answer.nodes < query.max_nodes) {
        Node node = open.top();
        open.pop();
        node.place = answer.nodes++;
        answer.tokens[node.place] = node.token, answer.parents[node.place] = node.parent;
        answer.counts[node.place] = node.last - node.first;
        open_children(node);
    }
}

}  // namespace outdraft

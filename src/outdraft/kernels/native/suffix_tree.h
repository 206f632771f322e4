// All spans of the texts of a queue, up to a length, with how often each occurs: a suffix tree of bounded depth.
//
//     texts  a b c a b d       root - ab 2 - c a.. 1        an edge is a piece of one of the texts;
//                                   \    \ d      1        a node's count is that of every span that ends in its edge
//                                    b 2 - ...
//
// Texts come in at one end, token by token, and leave whole at the other. Each token extends the spans that end at it:
// O(depth). An edge always points into the latest text that has it, so when the oldest text leaves nothing else does.
#pragma once
#include <cstdint>
#include <deque>
#include <vector>

#include "edges.h"

namespace outdraft {

struct GuessLimits {
    int max_nodes, max_depth, width;  // width: children of a node; 1 is a chain
    double factor, offset, min_prob;  // at most factor * match + offset nodes, none less probable than min_prob
};

struct TreeGuess {  // room for max_nodes
    std::int32_t *tokens, *parents;  // parents: -1 below the root
    double* probs;
    std::int32_t nodes, match;
    double score;  // sum of probs
};

class SuffixTree {
public:
    explicit SuffixTree(int depth);  // throws unless it is at least 1

    void extend(const std::int32_t* tokens, int count);  // of the newest text; the first call begins one
    void close();                                        // the next call of `extend` begins another text
    void evict();                                        // the oldest text leaves; it must be closed
    std::int64_t count(const std::int32_t* span, int length) const;
    void guess(const std::int32_t* context, int length, const GuessLimits& limits, TreeGuess& best) const;

    int num_texts() const { return int(texts_.size()); }
    std::int64_t num_nodes() const { return std::int64_t(nodes_.size() - free_.size()) - 1; }
    std::int64_t bytes() const;

private:
    struct Node {
        std::int32_t parent = -1, place = 0;        // place among the parent's children
        std::int32_t text = 0, start = 0, size = 0;  // the edge: texts_[text - first_][start, start + size)
        std::int32_t count = 0, ends = 0;           // how often it occurs; how often a text (or the depth) ends here
        std::vector<std::int32_t> children;         // the most frequent first
    };
    struct Place {  // `used` tokens into the edge of `node`
        std::int32_t node, used;
    };

    const std::int32_t* edge(const Node& node) const { return texts_[node.text - first_].data() + node.start; }
    bool sole(std::int32_t node) const;
    std::int32_t make(const Node& like);
    std::int32_t step(std::int32_t node, std::int32_t token);
    std::int32_t split(std::int32_t node);
    void merge(std::int32_t node);
    void drop_first(std::int32_t node);
    void count_up(std::int32_t node);
    void count_down(std::int32_t node);
    void move_to(std::int32_t node, std::size_t place);
    bool find(const std::int32_t* span, int length, Place& place) const;
    bool goes_on(const Place& place) const;
    void expand(const Place& from, const GuessLimits& limits, int max_nodes, TreeGuess& found) const;

    int depth_;
    std::vector<Node> nodes_;  // 0 is the root
    std::vector<std::int32_t> free_;
    Edges edges_;
    std::deque<std::vector<std::int32_t>> texts_;
    std::int32_t first_ = 0;            // number of texts that left
    bool open_ = false;                 // the newest text still grows
    std::deque<std::int32_t> growing_;  // nodes of the spans that end with it, the longest first
};

}  // namespace outdraft

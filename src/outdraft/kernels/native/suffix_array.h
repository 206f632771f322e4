// The order of a text's suffixes, and what follows a span in it.
#pragma once
#include <atomic>
#include <cstdint>

namespace outdraft {

struct SortWatch {           // shared with the thread that waits for a sort
    std::atomic<int> stop;      // set it: the sort throws soon
    std::atomic<double> share;  // done so far, an estimate, 0..1
};

// tokens [n] in [0, alphabet) -> order [n]: starts of all suffixes, smallest first; the end of the text is smaller than
// any token. Takes at most about 2.3 n bytes beside `order`, one count a token of the alphabet among them.
void sort_suffixes(const std::int32_t* tokens, std::int32_t n, std::int32_t alphabet, std::int32_t* order, SortWatch* watch);

struct Corpus {  // a text and its order
    const std::int32_t* tokens;
    const std::int32_t* order;
    std::int32_t size, end;  // `end`: the token between documents; nothing is read across it
};

struct CorpusQuery {
    const std::int32_t* context;
    int length, min_match, max_match, max_hits, depth, max_nodes;
};

struct CorpusAnswer {  // the heaviest nodes of the trie of what followed; room for max_nodes
    std::int32_t *tokens, *parents, *counts;  // parents: -1 below the root
    std::int32_t nodes, match;
    std::int64_t hits;  // places in all, before `max_hits`
};

// Throws where the order is none: files may be damaged.
void look_up(const Corpus& corpus, const CorpusQuery& query, CorpusAnswer& answer);

}  // namespace outdraft

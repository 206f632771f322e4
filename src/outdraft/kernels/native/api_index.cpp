// The C interface of the indices over texts: suffix arrays, suffix trees, suffix automata.
#include "api.h"
#include "automaton.h"
#include "suffix_array.h"
#include "suffix_tree.h"

using namespace outdraft;

extern "C" {

OD_API std::int32_t* od_sort_suffixes(const std::int32_t* tokens, std::int32_t n, std::int32_t alphabet,
                                      std::int32_t* order, SortWatch* watch) {
    return guarded([&] { return sort_suffixes(tokens, n, alphabet, order, watch), order; });
}

OD_API CorpusAnswer* od_corpus_look_up(const Corpus* corpus, const CorpusQuery* query, CorpusAnswer* answer) {
    return guarded([&] { return look_up(*corpus, *query, *answer), answer; });
}

OD_API SuffixTree* od_suffix_tree_new(int depth) {
    return guarded([&] { return new SuffixTree(depth); });
}

OD_API void od_suffix_tree_free(SuffixTree* tree) { delete tree; }

OD_API SuffixTree* od_suffix_tree_extend(SuffixTree* tree, const std::int32_t* tokens, int count) {
    return guarded([&] { return tree->extend(tokens, count), tree; });
}

OD_API void od_suffix_tree_close(SuffixTree* tree) { tree->close(); }

OD_API SuffixTree* od_suffix_tree_evict(SuffixTree* tree) {
    return guarded([&] { return tree->evict(), tree; });
}

OD_API std::int64_t od_suffix_tree_count(const SuffixTree* tree, const std::int32_t* span, int length) {
    return tree->count(span, length);
}

OD_API const SuffixTree* od_suffix_tree_guess(const SuffixTree* tree, const std::int32_t* context, int length,
                                              const GuessLimits* limits, TreeGuess* best) {
    return guarded([&] { return tree->guess(context, length, *limits, *best), tree; });
}

OD_API int od_suffix_tree_texts(const SuffixTree* tree) { return tree->num_texts(); }
OD_API std::int64_t od_suffix_tree_nodes(const SuffixTree* tree) { return tree->num_nodes(); }
OD_API std::int64_t od_suffix_tree_bytes(const SuffixTree* tree) { return tree->bytes(); }

OD_API Automaton* od_automaton_new() {
    return guarded([] { return new Automaton(); });
}

OD_API void od_automaton_free(Automaton* automaton) { delete automaton; }

OD_API Automaton* od_automaton_extend(Automaton* automaton, const std::int32_t* tokens, int count) {
    return guarded([&] { return automaton->extend(tokens, count), automaton; });
}

// Reads tokens without learning them; the cursor [state, length] moves on.
OD_API const Automaton* od_automaton_read(const Automaton* automaton, Automaton::Cursor* cursor, const std::int32_t* tokens,
                                          int count) {
    return guarded([&] { return automaton->read(*cursor, tokens, count), automaton; });
}

OD_API std::int32_t od_automaton_match(const Automaton* automaton) { return automaton->match(); }
OD_API std::int32_t od_automaton_match_end(const Automaton* automaton) { return automaton->match_end(); }
OD_API const Automaton* od_automaton_end(const Automaton* automaton, const Automaton::Cursor* cursor, std::int32_t* end) {
    return guarded([&] { return *end = automaton->end(*cursor), automaton; });
}
OD_API std::int64_t od_automaton_bytes(const Automaton* automaton) { return automaton->bytes(); }

}  // extern "C"

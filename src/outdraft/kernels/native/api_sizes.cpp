// The sizes of the structures that cross the C interface, so that a binding finds out when it was written for others.
#include "api.h"
#include "automaton.h"
#include "guesser.h"
#include "suffix_array.h"
#include "suffix_tree.h"

using namespace outdraft;

// -1 for a name that is not known.
extern "C" OD_API std::int64_t od_size_of(const char* name) {
    const struct {
        const char* name;
        std::size_t size;
    } known[] = {
        {"od_blocks", sizeof(od_blocks)},
        {"od_linear", sizeof(od_linear)},
        {"od_norms", sizeof(od_norms)},
        {"od_entrance", sizeof(od_entrance)},
        {"Shape", sizeof(Shape)},
        {"Span", sizeof(Span)},
        {"Pass", sizeof(Pass)},
        {"Feed", sizeof(Feed)},
        {"Distribution", sizeof(Distribution)},
        {"GuessChain", sizeof(GuessChain)},
        {"RowLosses", sizeof(RowLosses)},
        {"SortWatch", sizeof(SortWatch)},
        {"Corpus", sizeof(Corpus)},
        {"CorpusQuery", sizeof(CorpusQuery)},
        {"CorpusAnswer", sizeof(CorpusAnswer)},
        {"GuessLimits", sizeof(GuessLimits)},
        {"TreeGuess", sizeof(TreeGuess)},
        {"Cursor", sizeof(Automaton::Cursor)},
    };
    for (const auto& one : known)
        if (!std::strcmp(one.name, name)) return std::int64_t(one.size);
    return -1;
}

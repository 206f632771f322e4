// The suffix automaton of a growing text (Blumer et al., "The smallest automaton recognizing the subwords of a text",
// 1985, https://doi.org/10.1016/0304-3975(85)90157-4): which is the longest end of a context that the text has?
//
// A state is a set of spans that end at the same places; reading a token costs O(1) amortised.
#pragma once
#include <cstdint>
#include <vector>

#include "edges.h"

namespace outdraft {

class Automaton {
public:
    struct Cursor {  // the longest end of what was read that the text has: `length` tokens, in `state`
        std::int32_t state, length;
    };

    Automaton() : states_{{-1, 0, -1, -1}} {}

    void extend(const std::int32_t* tokens, int count);
    // Another text; both throw at another automaton's cursor.
    void read(Cursor& cursor, const std::int32_t* tokens, int count) const;
    std::int32_t end(const Cursor& cursor) const { return states_.at(cursor.state).end; }  // a place where the text has it

    std::int32_t match() const { return match_; }          // length of the longest end of the text that it had before
    std::int32_t match_end() const { return match_end_; }  // where it had it
    std::int64_t bytes() const;

private:
    struct State {
        std::int32_t link, length, end, first;  // end: of an occurrence in the text; first: of its list of tokens
    };
    struct Token {
        std::int32_t token, next;
    };

    void append(std::int32_t token);
    void connect(std::int32_t from, std::int32_t token, std::int32_t to);

    std::vector<State> states_;
    std::vector<Token> tokens_;  // of the edges of each state, linked
    Edges edges_;
    std::int32_t last_ = 0, size_ = 0, match_ = 0, match_end_ = -1;
};

}  // namespace outdraft

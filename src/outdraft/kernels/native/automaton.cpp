#include "automaton.h"

#include <stdexcept>

namespace outdraft {

using Int = std::int32_t;

void Automaton::read(Cursor& cursor, const Int* tokens, int count) const {
    auto [state, length] = cursor;
    states_.at(state);
    for (int i = 0; i < count; i++) {
        Int next = edges_.get(state, tokens[i]);
        for (; next < 0 && state; next = edges_.get(state, tokens[i]))
            state = states_[state].link, length = states_[state].length;
        state = next < 0 ? 0 : next, length = next < 0 ? 0 : length + 1;
    }
    cursor = {state, length};
}

void Automaton::extend(const Int* tokens, int count) {
    for (int i = 0; i < count; i++) {
        append(tokens[i]);
        State& longest = states_[states_[last_].link];  // the longest end of the text that it had before
        match_ = longest.length, match_end_ = longest.end;
        longest.end = size_ - 1;  // next time this is the latest place
    }
}

void Automaton::append(Int token) {
    const Int made = Int(states_.size());
    states_.push_back({0, states_[last_].length + 1, size_++, -1});
    Int from = last_;
    for (; from >= 0 && edges_.get(from, token) < 0; from = states_[from].link) connect(from, token, made);
    last_ = made;
    if (from < 0) return;
    const Int to = edges_.get(from, token);
    if (states_[to].length == states_[from].length + 1) {
        states_[made].link = to;
        return;
    }
    const Int half = Int(states_.size());
    states_.push_back({states_[to].link, states_[from].length + 1, states_[to].end, -1});
    for (Int at = states_[to].first; at >= 0; at = tokens_[at].next)
        connect(half, tokens_[at].token, edges_.get(to, tokens_[at].token));
    for (; from >= 0 && edges_.get(from, token) == to; from = states_[from].link) edges_.set(from, token, half);
    states_[to].link = states_[made].link = half;
}

void Automaton::connect(Int from, Int token, Int to) {
    if (tokens_.size() > 0x7ffffff0u) throw std::runtime_error("the suffix automaton has 2^31 edges");
    edges_.set(from, token, to);
    tokens_.push_back({token, states_[from].first});
    states_[from].first = Int(tokens_.size()) - 1;
}

std::int64_t Automaton::bytes() const {
    return std::int64_t(states_.capacity() * sizeof(State) + tokens_.capacity() * sizeof(Token) + edges_.bytes());
}

}  // namespace outdraft

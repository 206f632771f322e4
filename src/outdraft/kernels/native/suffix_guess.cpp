// What the tree expects after a text: for each match length the most probable continuations, of all lengths the best.
#include <algorithm>
#include <queue>

#include "suffix_tree.h"

namespace outdraft {

using Int = std::int32_t;

bool SuffixTree::find(const Int* span, int length, Place& place) const {
    place = {0, 0};
    for (int at = 0; at < length; at += place.used) {
        place.node = edges_.get(place.node, span[at]);
        if (place.node < 0) return false;
        const Node& node = nodes_[place.node];
        place.used = std::min(length - at, int(node.size));
        if (!std::equal(span + at, span + at + place.used, edge(node))) return false;
    }
    return true;
}

bool SuffixTree::goes_on(const Place& place) const {
    const Node& node = nodes_[place.node];
    return place.used < node.size || !node.children.empty();
}

std::int64_t SuffixTree::count(const Int* span, int length) const {
    Place place;
    return length > 0 && length <= depth_ && find(span, length, place) ? nodes_[place.node].count : 0;
}

void SuffixTree::guess(const Int* context, int length, const GuessLimits& limits, TreeGuess& best) const {
    best.nodes = best.match = 0, best.score = 0;
    Place place;
    const auto known = [&](int match) { return find(context + length - match, match, place) && goes_on(place); };
    int match = 0;  // what follows a longer end of the context follows a shorter one too: bisection for the longest
    for (int low = 1, high = std::min(depth_ - 1, length); low <= high;) {
        const int middle = (low + high) / 2;
        if (known(middle)) match = middle, low = middle + 1;
        else high = middle - 1;
    }
    std::vector<Int> tokens(limits.max_nodes), parents(limits.max_nodes);
    std::vector<double> probs(limits.max_nodes);
    TreeGuess found{tokens.data(), parents.data(), probs.data(), 0, 0, 0};
    for (; match > 0; match--) {
        const double most = std::min(double(limits.max_nodes), limits.factor * match + limits.offset);
        // No shorter match can score more: probabilities add up to 1 a level.
        if (std::min(most, double(limits.max_depth)) <= best.score) break;
        known(match);
        expand(place, limits, int(most), found);
        if (found.score <= best.score) continue;
        std::copy_n(found.tokens, found.nodes, best.tokens);
        std::copy_n(found.parents, found.nodes, best.parents);
        std::copy_n(found.probs, found.nodes, best.probs);
        best.nodes = found.nodes, best.match = match, best.score = found.score;
    }
}

void SuffixTree::expand(const Place& from, const GuessLimits& limits, int max_nodes, TreeGuess& found) const {
    struct Candidate {  // the token after `place`'s first `used` ones
        double prob;
        int born;
        Place place;
        Int parent, depth;
        bool operator<(const Candidate& other) const {  // the most probable first, of equal ones the one that came first
            return prob != other.prob ? prob < other.prob : born > other.born;
        }
    };
    std::priority_queue<Candidate> open;
    std::vector<Int> children;
    int born = 0;
    found.nodes = 0, found.score = 0;
    const auto push = [&](const Place& place, double prob, Int parent, Int depth) {
        const Node& node = nodes_[place.node];
        if (depth > limits.max_depth) return;
        if (place.used < node.size) return open.push({prob, born++, place, parent, depth});
        const double whole = node.count - node.ends;  // a text that ended says nothing of what follows
        children.clear();
        for (Int child : node.children) {
            if (prob * (nodes_[child].count / whole) < limits.min_prob) break;
            children.push_back(child);
        }
        std::sort(children.begin(), children.end(), [&](Int a, Int b) {
            return nodes_[a].count != nodes_[b].count ? nodes_[a].count > nodes_[b].count : *edge(nodes_[a]) < *edge(nodes_[b]);
        });
        if (int(children.size()) > limits.width) children.resize(limits.width);
        for (Int child : children) open.push({prob * (nodes_[child].count / whole), born++, {child, 0}, parent, depth});
    };
    push(from, 1, -1, 1);
    while (!open.empty() && found.nodes < max_nodes) {
        const Candidate top = open.top();
        open.pop();
        const Int place = found.nodes++;
        found.tokens[place] = edge(nodes_[top.place.node])[top.place.used];
        found.parents[place] = top.parent, found.probs[place] = top.prob;
        found.score += top.prob;
        push({top.place.node, top.place.used + 1}, top.prob, place, top.depth + 1);
    }
}

}  // namespace outdraft

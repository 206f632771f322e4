// How the tree grows and shrinks. Every span that a text ends with (or that is `depth` long) ends at a node, never inside
// an edge; a node with one child that it shares all its occurrences with is merged with it.
#include "suffix_tree.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace outdraft {

using Int = std::int32_t;

SuffixTree::SuffixTree(int depth) : depth_(depth), nodes_(1) {
    if (depth < 1) throw std::runtime_error("the depth of a suffix tree is at least 1, not " + std::to_string(depth));
}

void SuffixTree::extend(const Int* tokens, int count) {
    if (!open_) texts_.emplace_back(), growing_.clear(), open_ = true;
    for (int i = 0; i < count; i++) {
        texts_.back().push_back(tokens[i]);
        if (int(growing_.size()) == depth_) growing_.pop_front();  // as long as spans get: it stays where it is
        growing_.push_back(0);
        for (Int& node : growing_) node = step(node, tokens[i]);
    }
}

void SuffixTree::close() { open_ = false; }

// The node one `token` below `node`, which a span that just ended there goes on to.
Int SuffixTree::step(Int node, Int token) {
    const Int text = first_ + Int(texts_.size()) - 1, at = Int(texts_.back().size()) - 1;
    const bool alone = sole(node);
    if (node) nodes_[node].ends--;
    Int child = edges_.get(node, token);
    if (child < 0 && alone && nodes_[node].children.empty()) {  // no other span came so far: the edge grows
        nodes_[node].size++, nodes_[node].ends++;
        return node;
    }
    if (child < 0) {
        Node leaf;
        leaf.parent = node, leaf.text = text, leaf.start = at, leaf.size = leaf.count = leaf.ends = 1;
        leaf.place = Int(nodes_[node].children.size());
        child = make(leaf);
        nodes_[node].children.push_back(child);
        edges_.set(node, token, child);
        return child;
    }
    if (nodes_[child].size > 1 && alone) {  // only our end made `node` a node: it moves on
        drop_first(child);
        edges_.erase(node, token);
        edges_.set(node, *edge(nodes_[child]), child);
        nodes_[node].size++, nodes_[node].ends++;
        nodes_[node].text = text, nodes_[node].start = at + 1 - nodes_[node].size;
        return node;
    }
    if (nodes_[child].size > 1) child = split(child);
    count_up(child);
    nodes_[child].text = text, nodes_[child].start = at, nodes_[child].ends++;
    if (alone) merge(node);
    return child;
}

// Whether `node` is one only because a single span ends there.
bool SuffixTree::sole(Int node) const {
    const Node& at = nodes_[node];
    return node && at.ends == 1 && at.children.size() == (at.count > 1);
}

Int SuffixTree::make(const Node& like) {
    if (free_.empty()) {
        if (nodes_.size() > 0x7ffffff0u) throw std::runtime_error("the suffix tree has 2^31 nodes");
        nodes_.push_back(like);
        return Int(nodes_.size()) - 1;
    }
    const Int node = free_.back();
    free_.pop_back();
    nodes_[node] = like;
    return node;
}

// A node for the first token of the edge of `node`, in its place; returns it.
Int SuffixTree::split(Int node) {
    Node upper = nodes_[node];
    upper.size = 1, upper.ends = 0, upper.children = {node};
    const Int made = make(upper);
    nodes_[upper.parent].children[upper.place] = made;
    edges_.set(upper.parent, *edge(upper), made);
    drop_first(node);
    nodes_[node].parent = made, nodes_[node].place = 0;
    edges_.set(made, *edge(nodes_[node]), node);
    return made;
}

// `node` and its only child become one, under the child's number.
void SuffixTree::merge(Int node) {
    Node& upper = nodes_[node];
    const Int child = upper.children[0];
    Node& lower = nodes_[child];
    edges_.erase(node, *edge(lower));
    edges_.set(upper.parent, *edge(upper), child);
    nodes_[upper.parent].children[upper.place] = child;
    lower.start -= upper.size, lower.size += upper.size;
    lower.parent = upper.parent, lower.place = upper.place;
    upper = Node();
    free_.push_back(node);
}

void SuffixTree::drop_first(Int node) { nodes_[node].start++, nodes_[node].size--; }

// The children stay in order: the node changes places with the first, or last, of those that were as frequent.
void SuffixTree::count_up(Int node) {
    const auto& row = nodes_[nodes_[node].parent].children;
    const Int count = nodes_[node].count++;
    move_to(node, std::partition_point(row.begin(), row.begin() + nodes_[node].place,
                                       [&](Int other) { return nodes_[other].count > count; }) - row.begin());
}

void SuffixTree::count_down(Int node) {
    const auto& row = nodes_[nodes_[node].parent].children;
    const Int count = nodes_[node].count--;
    move_to(node, std::partition_point(row.begin() + nodes_[node].place + 1, row.end(),
                                       [&](Int other) { return nodes_[other].count >= count; }) - row.begin() - 1);
}

void SuffixTree::move_to(Int node, std::size_t place) {
    auto& row = nodes_[nodes_[node].parent].children;
    const Int other = row[place], from = nodes_[node].place;
    std::swap(row[place], row[from]);
    nodes_[other].place = from, nodes_[node].place = Int(place);
}

void SuffixTree::evict() {
    if (texts_.empty() || (texts_.size() == 1 && open_)) throw std::runtime_error("no closed text is left to evict");
    const std::vector<Int>& text = texts_.front();
    std::vector<Int> path;
    const int size = int(text.size());
    for (int start = 0; start < size; start++) {
        const int stop = start + std::min(depth_, size - start);
        path.clear();
        for (int at = start; at < stop; at += nodes_[path.back()].size)
            path.push_back(edges_.get(path.empty() ? 0 : path.back(), text[at]));
        nodes_[path.back()].ends--;
        for (Int node : path) count_down(node);
        for (; !path.empty(); path.pop_back()) {
            const Int node = path.back();
            Node& gone = nodes_[node];
            if (gone.count == 0) {
                edges_.erase(gone.parent, *edge(gone));
                nodes_[gone.parent].children.pop_back();  // the least frequent stands last
                gone = Node();
                free_.push_back(node);
            } else if (gone.ends == 0 && gone.children.size() == 1) {
                merge(node);
            }
        }
    }
    texts_.pop_front();
    first_++;
}

std::int64_t SuffixTree::bytes() const {
    std::size_t total = nodes_.capacity() * sizeof(Node) + edges_.bytes();
    for (const Node& node : nodes_) total += node.children.capacity() * sizeof(Int);
    for (const auto& text : texts_) total += text.capacity() * sizeof(Int);
    return std::int64_t(total);
}

}  // namespace outdraft

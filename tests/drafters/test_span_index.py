"""The tree builder: scores are sums of counts, the heaviest nodes stay, and what the look-up asks of its budget."""

import random
from collections import Counter

import pytest
from drafters.drafting import sequence

from outdraft.core.policy import Budget
from outdraft.drafters.shared.look_up.span_index import BORDER, Sequel, Trie, copy_on, look_up


class Known:
    """An index of fixed answers."""

    def __init__(self, *found):
        self.found, self.read = found, 0

    def lookup(self, context, depth):
        for tokens, count in self.found:
            self.read += 1
            yield Sequel(tokens[:depth], count)


def prefixes(tokens, parents):
    """The path of each node but the root."""
    paths = [()]
    for token, parent in zip(tokens[1:], parents[1:], strict=True):
        paths.append((*paths[parent], token))
    return paths[1:]


def test_scores_equal_counts_and_the_heaviest_stay():
    random.seed(5)
    for _ in range(50):
        trie, counts = Trie(0), Counter()
        for _ in range(30):
            path, count = [random.randrange(3) for _ in range(random.randrange(1, 5))], random.randrange(4)
            trie.insert(path, count)
            for i in range(len(path)):
                counts[tuple(path[: i + 1])] += count
        paths = prefixes(trie.tokens, trie.parents)
        assert dict(zip(paths, trie.scores[1:], strict=True)) == counts
        for limit in (0, 1, 7, 500):
            kept = prefixes(*trie.heaviest(limit))
            assert len(kept) == len(set(kept)) == min(limit, len(paths))
            assert all(path[:-1] in kept or len(path) == 1 for path in kept)  # nothing without its parent
            if 0 < limit < len(paths):
                assert min(counts[path] for path in kept) >= max(counts[path] for path in paths if path not in kept)


def test_ties_go_to_what_came_first():
    trie = Trie(9)
    trie.insert([1, 2])
    trie.insert([3, 4])
    assert trie.heaviest(2) == ([9, 1, 2], [-1, 0, 1])


@pytest.mark.parametrize(("depth", "nodes", "wanted"), [(0, None, 0), (2, 0, 0), (2, None, 4), (3, 2, 2), (3, None, 5)])
def test_budgets(depth, nodes, wanted):
    index = Known(([1, 2, 3], 2), ([1, 4], 1), ([5], 1))
    draft = look_up(index, sequence([7, 8]), Budget(depth=depth, nodes=nodes), max_nodes=9)
    assert draft.num_nodes == 1 + wanted
    assert draft.tokens[0] == 8
    assert index.read == (3 if wanted else 0)  # a look-up without a budget costs nothing


def test_a_copy_ends_with_the_text_or_at_a_border_unless_it_goes_on_with_itself():
    text = [1, 2, 3, BORDER, 4, 5]
    assert copy_on(text, 1, 5) == copy_on(text, 1, 5, wrap=True) == [2, 3]
    assert copy_on(text, 4, 5) == [4, 5] and copy_on(text, 4, 1) == [4] and copy_on(text, 6, 5, wrap=True) == []
    assert copy_on(text, 4, 5, wrap=True) == [4, 5, 4, 5, 4]


def test_no_tree_larger_than_the_context():
    seq = sequence([7, 8])
    seq.max_len = 4
    assert look_up(Known(([1, 2, 3], 1), ([4], 1)), seq, Budget(depth=3), max_nodes=9).num_nodes == 3


def test_branches_are_continuations_that_differ():
    index = Known(([1, 2], 1), ([1, 2], 1), ([1], 1), ([1, 3], 1), ([4], 1))
    draft = look_up(index, sequence([7]), Budget(depth=2), max_nodes=9, max_branches=2)
    assert draft.tokens.tolist() == [7, 1, 2, 3]
    assert index.read == 4


def test_a_common_span_is_not_read_to_its_end():
    index = Known(*[([1], 1)] * 100)
    assert look_up(index, sequence([7]), Budget(depth=2), max_nodes=9, max_branches=2).num_nodes == 2
    assert index.read == 16

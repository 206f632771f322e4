"""Suffix trees: every count equals a recount after any inserts and evictions; native and reference guess the same."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outdraft.kernels.library import library
from outdraft.kernels.text_index.suffix_tree import (
    GuessLimits,
    NativeSuffixTree,
    SuffixTrieReference,
    TreeGuess,
    make_suffix_tree,
)

native = pytest.mark.skipif(library() is None, reason="the kernels are not built")
KINDS = [SuffixTrieReference, pytest.param(NativeSuffixTree, marks=native)]
pieces = st.lists(st.integers(0, 2), max_size=12)
steps = st.lists(st.one_of(st.tuples(st.just("extend"), pieces), st.just(("close",)), st.just(("evict",))), max_size=25)


def play(trees, script):
    """Run a script; returns the texts that are left."""
    texts, is_open = [], False
    for name, *arguments in script:
        if name == "evict" and len(texts) <= is_open:
            continue
        for tree in trees:
            getattr(tree, name)(*arguments)
        if name == "extend":
            if not is_open:
                texts.append([])
            texts[-1] = texts[-1] + arguments[0]
            is_open = True
        elif name == "close":
            is_open = False
        else:
            texts.pop(0)
    return texts


def recount(texts, depth):
    return Counter(
        tuple(text[start:stop])
        for text in texts
        for start in range(len(text))
        for stop in range(start + 1, min(start + depth, len(text)) + 1)
    )


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=300)
@given(steps, st.integers(1, 6))
def test_counts_equal_a_recount_after_inserts_and_evictions(kind, script, depth):
    tree = kind(depth)
    texts = play([tree], script)
    counts = recount(texts, depth)
    assert tree.num_texts == len(texts)
    for span, wanted in counts.items():
        assert tree.count(span) == wanted, span
        for token in range(3):
            longer = (*span, token)
            assert tree.count(longer) == (counts[longer] if len(longer) <= depth else 0)
    assert tree.count([]) == 0 and tree.count([9]) == 0


@native
@settings(deadline=None, max_examples=200)
@given(steps, st.integers(2, 6))
def test_an_emptied_tree_holds_nothing(script, depth):
    tree = NativeSuffixTree(depth)
    play([tree], [*script, ("close",)])
    while tree.num_texts:
        tree.evict()
    assert tree.num_nodes == 0
    with pytest.raises(RuntimeError, match="no closed text"):
        tree.evict()


@native
@settings(deadline=None, max_examples=300)
@given(
    steps,
    st.integers(2, 6),
    pieces,
    st.integers(1, 9),
    st.integers(1, 5),
    st.sampled_from([0.0, 0.1, 0.5, 0.9]),
    st.sampled_from([0.5, 1.0, 3.0]),
    st.sampled_from([1, 2, 99]),
)
def test_native_and_reference_guess_the_same(script, depth, context, nodes, deep, min_prob, factor, width):
    trees = [NativeSuffixTree(depth), SuffixTrieReference(depth)]
    texts = play(trees, script)
    limits = GuessLimits(max_nodes=nodes, max_depth=deep, min_prob=min_prob, factor=factor, width=width)
    for ask in (context, texts[-1] if texts else [0]):
        fast, slow = (tree.guess(ask, limits) for tree in trees)
        assert fast == slow
        assert len(fast.tokens) <= min(nodes, int(factor * fast.match)) and all(p >= min_prob for p in fast.probs)


@native
@settings(deadline=None, max_examples=100)
@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=40), min_size=1, max_size=6))
def test_nodes_stay_in_proportion_to_tokens(texts):
    """At most two nodes a token, whatever came and went: edges are merged again."""
    tree = NativeSuffixTree(8)
    for text in [*texts, *texts]:
        tree.extend(text)
        tree.close()
        if tree.num_texts > 2:
            tree.evict()
    left = [*texts, *texts][-2:]
    assert tree.num_nodes <= 2 * sum(map(len, left))


@pytest.mark.parametrize("kind", KINDS)
def test_probabilities_are_products_of_shares(kind):
    tree = kind(8)
    for text in ([1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 3, 5], [1, 2, 6]):
        tree.extend(text)
        tree.close()
    guess = tree.guess([9, 1, 2], GuessLimits(max_nodes=9, max_depth=9, factor=9))
    assert (guess.tokens, guess.parents) == ([3, 5, 6, 4], [-1, 0, -1, 0])
    assert guess.probs == pytest.approx([3 / 4, 2 / 4, 1 / 4, 1 / 4]) and guess.match == 2
    assert guess.score == pytest.approx(7 / 4)
    chain = tree.guess([9, 1, 2], GuessLimits(max_nodes=9, max_depth=9, factor=9, width=1))
    assert chain.tokens == [3, 5]


@pytest.mark.parametrize("kind", KINDS)
def test_the_open_text_predicts_itself(kind):
    tree = kind(8)
    tree.extend([1, 2, 3, 1, 2])
    guess = tree.guess([1, 2, 3, 1, 2], GuessLimits(max_nodes=4, max_depth=4, factor=2))
    assert guess.tokens == [3, 1, 2] and guess.probs == [1, 1, 1] and guess.match == 2


def test_without_the_kernels_the_reference_serves(monkeypatch):
    monkeypatch.setenv("OUTDRAFT_KERNELS", "off")
    assert isinstance(make_suffix_tree(4), SuffixTrieReference)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("depth", [0, -3])
def test_a_tree_without_depth_is_an_error(kind, depth):
    with pytest.raises(RuntimeError, match=f"at least 1, not {depth}"):
        kind(depth)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("depth", [2**31 - 1, 2**40])
def test_any_depth_is_enough_for_a_short_text(kind, depth):
    tree = kind(depth)
    for text in ([1, 2, 3, 1, 2, 4], [], [1, 2]):
        tree.extend(text)
        tree.close()
    assert tree.count([1, 2]) == 3 and tree.count([1, 2, 3, 1, 2, 4]) == 1
    guess = tree.guess([9, 3, 1, 2], GuessLimits(max_nodes=4, max_depth=4, factor=2))
    assert (guess.tokens, guess.match) == ([3, 4, 1, 2], 2)
    tree.evict()
    assert tree.count([1, 2]) == 1 and tree.count([3]) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_tree_expects_nothing(kind):
    tree, limits = kind(4), GuessLimits(max_nodes=4, max_depth=4)
    tree.extend([])
    assert tree.guess([1, 2], limits) == tree.guess([], limits) == TreeGuess() and tree.count([1]) == 0

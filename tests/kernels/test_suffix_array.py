"""Suffix arrays: the order and every look-up equal brute force, natively and in numpy; a sort can be stopped."""

import threading
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outdraft.kernels.library import library
from outdraft.kernels.text_index.suffix_array import (
    CorpusAnswer,
    CorpusQuery,
    SortedText,
    look_up,
    look_up_reference,
    sort_suffixes,
    sort_suffixes_reference,
)
from outdraft.options.errors import ConfigError

END = 4
native = pytest.mark.skipif(library() is None, reason="the kernels are not built")
texts = st.lists(st.integers(0, END), max_size=80)


def make_corpus(text):
    tokens = np.array(text, dtype=np.int32)
    return SortedText(tokens=tokens, order=sort_suffixes_reference(tokens), end=END)


def sorted_natively(tokens, alphabet):
    order = np.empty(len(tokens), dtype=np.int32)
    sort_suffixes(tokens, order, alphabet)
    return order


@settings(deadline=None)
@given(texts)
def test_the_reference_equals_brute_force(text):
    wanted = sorted(range(len(text)), key=lambda start: text[start:])
    assert sort_suffixes_reference(np.array(text, dtype=np.int32)).tolist() == wanted


@native
@settings(deadline=None, max_examples=400)
@given(st.one_of(texts, st.lists(st.integers(0, 1), max_size=200)))
def test_the_native_order_equals_brute_force(text):
    wanted = sorted(range(len(text)), key=lambda start: text[start:])
    assert sorted_natively(np.array(text, dtype=np.int32), END + 1).tolist() == wanted


@native
@pytest.mark.parametrize("alphabet", [1, 2, 50, 60_000])
def test_long_texts_of_any_alphabet(alphabet):
    rng = np.random.default_rng(alphabet)
    block = rng.integers(0, alphabet, 700).astype(np.int32)
    text = np.concatenate([block, rng.integers(0, alphabet, 5000).astype(np.int32), block, block])
    assert (sorted_natively(text, alphabet) == sort_suffixes_reference(text)).all()


@native
def test_a_token_outside_of_the_alphabet_is_an_error():
    for bad in (-1, 5):
        with pytest.raises(RuntimeError, match="alphabet"):
            sorted_natively(np.array([1, bad, 2], dtype=np.int32), 5)


@native
def test_an_interrupted_sort_stops_and_says_so(monkeypatch):
    tokens = np.random.default_rng(0).integers(0, 1000, 6_000_000).astype(np.int32)
    shares = []

    def tell(share):
        shares.append(share)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sort_suffixes(tokens, np.empty_like(tokens), 1000, tell)
    assert 0 <= shares[0] < 0.9 and len(shares) == 1
    assert not [thread for thread in threading.enumerate() if thread.name == "sort_suffixes"]


def brute_force(text, context, query):
    """The longest match, its places, and for each continuation's beginning how often it came."""
    for match in range(min(query.max_match, len(context)), query.min_match - 1, -1):
        span = context[len(context) - match :]
        ends = [at + match for at in range(len(text)) if text[at : at + match] == span]
        if ends:
            counts = Counter()
            for end in ends:
                row = text[end : end + query.depth]
                row = row[: row.index(END)] if END in row else row
                counts.update(tuple(row[: i + 1]) for i in range(len(row)))
            return match, len(ends), counts
    return 0, 0, Counter()


@pytest.mark.parametrize("ask", [look_up_reference, pytest.param(look_up, marks=native)])
@settings(deadline=None, max_examples=150)
@given(st.data())
def test_hits_and_weights_equal_brute_force(ask, data):
    text = data.draw(texts)
    context = data.draw(st.lists(st.integers(0, END - 1), max_size=8))
    query = CorpusQuery(
        min_match=data.draw(st.integers(1, 3)),
        max_match=data.draw(st.integers(3, 6)),
        depth=data.draw(st.integers(1, 4)),
        max_nodes=data.draw(st.integers(1, 400)),
    )
    answer = ask(make_corpus(text), context, query)
    match, hits, counts = brute_force(text, context, query)
    assert (answer.match, answer.hits) == (match, hits)
    paths = [()]
    for token, parent in zip(answer.tokens, answer.parents, strict=True):
        paths.append((*paths[parent + 1], token))
    assert [counts[path] for path in paths[1:]] == answer.counts
    assert len(set(paths)) == len(paths)
    assert answer.counts == sorted(counts.values(), reverse=True)[: query.max_nodes]


@native
@settings(deadline=None, max_examples=150)
@given(texts, st.lists(st.integers(0, END - 1), max_size=6), st.integers(1, 12), st.integers(1, 9))
def test_native_and_reference_agree_also_on_a_sample_of_the_hits(text, context, max_hits, max_nodes):
    query = CorpusQuery(min_match=1, max_hits=max_hits, max_nodes=max_nodes, depth=3)
    corpus = make_corpus(text)
    assert look_up(corpus, context, query) == look_up_reference(corpus, context, query)


@pytest.mark.parametrize("ask", [look_up_reference, pytest.param(look_up, marks=native)])
def test_an_empty_corpus_knows_nothing(ask):
    assert ask(make_corpus([]), [1, 2, 3], CorpusQuery(min_match=1)) == CorpusAnswer()


@native
@pytest.mark.parametrize("wrong", [-1, 6, 2**31 - 1, -(2**31)])
def test_a_damaged_order_is_an_error(wrong):
    corpus = make_corpus([1, 2, 3, 1, 2, END])
    corpus.order[:] = wrong
    with pytest.raises(RuntimeError, match="order of the suffixes is damaged"):
        look_up(corpus, [1, 2], CorpusQuery())
    corpus = make_corpus([1, 2, 3, 1, 2, END])
    corpus.order[3] = wrong  # a hit or a step of the search
    with pytest.raises(RuntimeError, match="damaged"):
        look_up(corpus, [2], CorpusQuery(min_match=1))


@native
def test_arrays_that_the_kernels_cannot_read_are_errors():
    tokens, order = np.arange(6, dtype=np.int32), np.empty(6, dtype=np.int32)
    for bad_tokens, bad_order in (
        (tokens.astype(np.int64), order),
        (tokens[::2], order[:3]),
        (tokens, order[:5]),
        (tokens, order[::-1]),
    ):
        with pytest.raises(ValueError, match="int32"):
            sort_suffixes(bad_tokens, bad_order, 6)
    with pytest.raises(ValueError, match="int32"):
        look_up(SortedText(tokens=tokens, order=order[:5], end=6), [1, 2], CorpusQuery())


@pytest.mark.parametrize("name", ["min_match", "max_match", "max_hits", "depth", "max_nodes"])
def test_a_query_for_nothing_is_an_error(name):
    with pytest.raises(ConfigError, match=f"{name}=0"):
        CorpusQuery(**{name: 0})

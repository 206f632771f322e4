"""Adaptive n-grams: counters that equal a recount, and that follow a text which changes its subject."""

import random
from collections import Counter

import pytest
from drafters.drafting import Reciter, make, sequence, states, write

from outdraft.drafters.anpd import NgramCounts
from outdraft.options.errors import ConfigError


def test_counters_equal_a_recount():
    dice, index, text = random.Random(4), NgramCounts(2, 4), []
    while len(text) < 1000:
        new = [dice.randrange(5) for _ in range(dice.randrange(4))]
        index.extend(new)
        text += new
    grams = [tuple(text[i : i + n]) for n in (2, 3, 4) for i in range(len(text) - n + 1)]
    counts = Counter(grams)
    assert index.counts == counts
    assert set(index.best) == {gram[:-1] for gram in grams}
    for context, token in index.best.items():
        assert counts[*context, token] == max(counts[*context, other] for other in range(5))


def test_of_equal_counts_the_later_one():
    index = NgramCounts(2, 2)
    index.extend([1, 2, 1, 3])
    assert [found.tokens for found in index.lookup([1], 1)] == [[3]]
    index.extend([1, 2])
    assert [found.tokens for found in index.lookup([1], 1)] == [[2]]


def test_the_longest_known_context_decides():
    index = NgramCounts(2, 3)
    index.extend([7, 5, 1, 8, 5, 2, 9, 5, 2])
    assert [found.tokens for found in index.lookup([7, 5], 1)] == [[1]]
    assert [found.tokens for found in index.lookup([6, 5], 1)] == [[2]]
    assert list(index.lookup([4], 3)) == []


def test_a_chain_goes_on_from_its_own_guesses():
    index = NgramCounts(2, 3)
    index.extend([1, 2, 3, 4, 1])
    assert [found.tokens for found in index.lookup([4, 1], 6)] == [[2, 3, 4, 1, 2, 3]]


def test_recovers_from_a_change_of_subject():
    """Two texts of the same words in other orders: within 50 tokens of the second the guesses are right again."""
    dice, words = random.Random(6), list(range(20))
    first, second = dice.sample(words, 20), dice.sample(words, 20)
    text = first * 6 + second * 10
    switch = len(first * 6)

    def late(drafter):
        """Tokens a pass from 50 tokens after the change on."""
        seq = sequence(first, max_tokens=len(text) - len(first))
        written, late = len(first), []
        for event in write([seq], Reciter(text, 20), drafter, k=6).events:
            written += len(event.tokens)
            if written > switch + 50:
                late.append(len(event.tokens))
        assert seq.tokens == text
        return sum(late) / len(late)

    class Frozen(NgramCounts):
        """Learns nothing after the change."""

        room = switch

        def extend(self, tokens):
            tokens = tokens[: self.room]
            self.room -= len(tokens)
            super().extend(tokens)

    adaptive, frozen = make("anpd"), make("anpd")
    frozen._make_index = lambda seq: Frozen(2, 5)
    assert late(adaptive) >= 6
    assert late(frozen) < 2
    assert all(not state for state in states(adaptive).values())


@pytest.mark.parametrize("bad", [{"min_order": 1}, {"min_order": 6}])
def test_bad_options(bad):
    with pytest.raises(ConfigError, match="min_order"):
        make("anpd", **bad)

"""References are indexed once for all texts of a request, and beside the steps where they are long."""

import logging
import threading

import pytest
from drafters.drafting import make, sequence

from outdraft.core.policy import Budget
from outdraft.core.request import Request
from outdraft.drafters.shared.look_up.quotes import Quotes
from outdraft.options.params import SamplingParams

SHORT, LONG = ((3, 4, 5, 6),), (tuple(range(5000)),)


def texts(references, n=3):
    """The texts of one request, as sequences."""
    one = Request(prompt_token_ids=(1, 2), params=SamplingParams(n=n, temperature=1.0), references=references)
    made = [sequence((1, 2)) for _ in range(n)]
    for seq, request in zip(made, one.singles(), strict=True):
        seq.request = request
    return made


def wait_for_indexing():
    for thread in threading.enumerate():
        if thread.name == "outdraft-references":
            thread.join(60)


def test_all_texts_of_a_request_share_one_index():
    made = []
    quotes = Quotes(lambda references: made.append(references) or [references])
    first, second = texts(SHORT), texts(SHORT)
    for seq in (*first, *second):
        quotes.begin(seq)
    assert len(made) == 1  # SHORT is one tuple
    assert all(quotes.of(seq) is quotes.of(first[0]) for seq in first)
    other = texts(tuple(tuple(one) for one in [[3, 4, 5, 6]]))
    quotes.begin(other[0])
    assert len(made) == 2 and quotes.of(other[0]) is not quotes.of(first[0])  # nothing is shared between requests
    for seq in (*first, *second, other[0]):
        assert quotes.of(seq) is not None
        quotes.end(seq)
    assert len(quotes) == 0 and quotes.of(first[0]) is None


def test_a_long_one_is_made_beside_the_steps():
    go, seen = threading.Event(), []

    def slow(references):
        seen.append(threading.current_thread())
        go.wait(60)
        return references

    quotes = Quotes(slow)
    seqs = texts(LONG)
    for seq in seqs:
        quotes.begin(seq)
    assert all(quotes.of(seq) is None for seq in seqs)
    go.set()
    wait_for_indexing()
    assert all(quotes.of(seq) == LONG for seq in seqs)
    assert len(seen) == 1 and seen[0] is not threading.current_thread()


def test_what_no_request_waits_for_any_more_is_not_made():
    go, made = threading.Event(), []
    quotes = Quotes(lambda references: (go.wait(60), made.append(references)))
    (first,), (second,) = texts(LONG, 1), texts((tuple(range(1, 5001)),), 1)
    quotes.begin(first)
    quotes.begin(second)
    quotes.end(first)
    quotes.end(second)
    go.set()
    wait_for_indexing()
    assert len(made) <= 1 and len(quotes) == 0


def test_an_error_beside_the_steps_costs_only_the_drafts(caplog):
    quotes = Quotes(lambda references: 1 / 0)
    (seq,) = texts(LONG, 1)
    with caplog.at_level(logging.ERROR):
        quotes.begin(seq)
        wait_for_indexing()
    assert quotes.of(seq) is None and "could not be indexed" in caplog.text


def test_without_references_there_is_nothing():
    quotes = Quotes(lambda references: references)
    (seq,) = texts((), 1)
    quotes.begin(seq)
    assert quotes.of(seq) is None and len(quotes) == 0
    quotes.end(seq)


@pytest.mark.parametrize("method", ["llma", "pia", "sam", "suffix"])
def test_every_drafter_that_reads_references_shares_them(method, monkeypatch):
    """Of 16 texts one index is made; each of them copies from it, short or long."""
    made = []
    for document in (list(range(100, 160)), list(range(100, 5100))):
        drafter = make(method)
        quotes, make_one = drafter._quotes, drafter._quotes._make
        monkeypatch.setattr(quotes, "_make", lambda texts, make_one=make_one: made.append(1) or make_one(texts))
        seqs = texts((tuple(document),), 16)
        for seq in seqs:
            seq.tokens[:] = [1, 2, *document[7:12]]
        drafter.begin(seqs)
        wait_for_indexing()
        drafts = drafter.propose(seqs, [Budget(depth=3)] * 16)
        assert all(draft.tokens.tolist()[:3] == document[11:14] for draft in drafts)
        drafter.end(seqs)
        assert len(drafter._quotes) == 0
    assert len(made) == 2

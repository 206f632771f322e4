"""What a draft's acceptance is promised about: answers of held-out examples."""

import numpy as np

from outdraft.training.beginnings import beginnings
from outdraft.training.corpus import Corpus


def corpus(*examples):
    """Each a list of (ids, whether they count)."""
    ids = [[one for part, _ in parts for one in part] for parts in examples]
    counts = [[counts for part, counts in parts for _ in part] for parts in examples]
    return Corpus(
        ids=np.array(sum(ids, []), np.int32), counts=np.array(sum(counts, []), np.bool_),
        starts=np.cumsum([0, *map(len, ids)]),
    )  # fmt: skip


def test_a_chat_begins_at_its_answers_and_not_in_the_template():
    """A system text of 40 tokens is the same in all; the second answers come when all first ones have come."""
    header = list(range(40))
    chats = [
        [([*header, 50 + i], False), ([7, 8], True), ([9], False), ([7] * i + [8], True)] for i in range(3)
    ]
    found = list(beginnings(corpus(*chats), 256))
    assert found[:3] == [(*header, 50), (*header, 51), (*header, 52)]
    assert found[3:] == [(*header, 50 + i, 7, 8, 9) for i in range(3)]
    assert next(beginnings(corpus(*chats), 5)) == (36, 37, 38, 39, 50), "the last tokens before the answer"


def test_a_text_begins_with_its_first_tokens_and_a_long_one_again():
    found = list(beginnings(corpus([(list(range(200)), True)], [([5, 6, 7], True)], [([1], True), ([2], False)]), 40))
    assert found == [tuple(range(32)), (5, 6), tuple(range(120, 160))], "where something follows that is to be guessed"


def test_no_prompt_comes_twice():
    alike = [([1, 2], False), ([3, 4], True)]
    assert list(beginnings(corpus(alike, alike, [([1], False), ([5], True)]), 8)) == [(1, 2), (1,)]

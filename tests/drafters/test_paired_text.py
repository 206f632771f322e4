"""Texts read in pairs: which rows a new one takes over, and which positions the rows that wait have."""

from dataclasses import replace

import pytest
import torch
from drafters.drafting import sequence

from outdraft.cache.config import CacheConfig
from outdraft.drafters.shared.networks.draft_cache import DraftCache
from outdraft.drafters.shared.networks.paired_text import PairedText

TEXT = list(range(100, 140))


def new_cache(**options):
    config = CacheConfig(layout="paged", prefixes=True, **options)
    return DraftCache(1, 1, 2, torch.float32, torch.device("cpu"), 100, exact=True, config=config)


def published(text, salt=None):
    """A cache whose only text has been read to its end and has left its rows."""
    cache, seq = new_cache(), salted(text, salt)
    own, ids = cache.add_pairs(seq)
    assert ids == []
    cache.extend([seq.id], [len(text) - 1])
    cache.keep(seq.id, range(len(text) - 1))
    cache.publish(seq.id, own, text[1:])
    return cache


def salted(text, salt=None, num_cached=39):
    seq = sequence(text)
    seq.request = replace(seq.request, cache_salt=salt)
    seq.num_cached = num_cached
    return seq


@pytest.mark.parametrize(("num_cached", "num_rows"), [(39, 32), (32, 32), (31, 16), (15, 0)])
def test_no_more_rows_are_taken_than_the_target_has(num_cached, num_rows):
    cache, seq = published(TEXT), salted(TEXT, num_cached=num_cached)
    _, ids = cache.add_pairs(seq)
    assert ids == TEXT[1 : num_rows + 1]
    assert cache.rows.length(seq.id) == num_rows


@pytest.mark.parametrize(
    ("text", "salt", "first_position"),
    [([7, *TEXT[1:]], None, 0), (TEXT, "of another user", 0), (TEXT, None, 2)],
    ids=["first token", "salt", "first position"],
)
def test_rows_of_another_text_are_not_taken(text, salt, first_position):
    """The first token goes with no row, and decides all of them."""
    cache, seq = published(TEXT), salted(text, salt)
    seq.first_position = first_position
    _, ids = cache.add_pairs(seq)
    assert ids == [] and cache.rows.length(seq.id) == 0


def test_rows_that_wait_stand_behind_those_that_were_read():
    text = PairedText(5)
    text.ids, text.tokens = [1, 2, 3], [4, 5]
    assert (text.num_read, text.waiting, text.end) == (3, range(8, 10), 10)

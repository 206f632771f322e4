"""Networks that replace each other have their rows in one cache, and never those of another network."""

import pytest
import torch

from outdraft.cache.config import CacheConfig
from outdraft.cache.shelf import CacheShelf
from outdraft.core.cache import PAGE
from outdraft.drafters.shared.networks.draft_cache import DraftCache
from outdraft.options.errors import CapabilityError

TEXT = list(range(100, 100 + 2 * PAGE))


def drafts(config, layers=1):
    return DraftCache(layers, 1, 2, torch.float32, torch.device("cpu"), 100, exact=True, config=config)


def leave(cache, seq):
    """A text of this network, whose rows later ones may take."""
    cache.add(seq)
    cache.extend([seq], [len(TEXT)])
    cache.keep(seq, range(len(TEXT)))
    cache.publish(seq, "salt", TEXT)


def taken(cache, seq):
    cache.add(seq)
    return cache.adopt(seq, "salt", TEXT)


def test_rows_of_another_network_are_not_taken():
    shelf = CacheShelf()
    config = CacheConfig(layout="paged", prefixes=True, num_pages=32, shelf=shelf).with_own_pool()
    first = drafts(config)
    leave(first, 0)
    assert taken(first, 1) >= PAGE, "the same network takes them"
    shelf.begin()
    second = drafts(config)
    assert second.rows is first.rows, "its rows lie where those before it lie, though the pool is settled"
    assert taken(second, 2) == 0
    leave(second, 3)
    assert taken(second, 4) >= PAGE


def test_a_network_of_other_sizes_is_refused():
    shelf = CacheShelf()
    config = CacheConfig(shelf=shelf)
    drafts(config)
    shelf.begin()
    with pytest.raises(CapabilityError, match="cannot replace one with"):
        drafts(config, layers=2)

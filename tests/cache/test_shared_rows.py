"""Which rows of a text are left to later ones, where the bits of a row depend on its pass."""

from types import SimpleNamespace

import pytest
from drafters.drafting import sequence

from outdraft.cache.shared_rows import SharedRows
from outdraft.core.sequence import CHUNK


@pytest.mark.parametrize(
    ("prompt", "num_shared"),
    [(1, 0), (CHUNK, 0), (CHUNK + 1, 0), (CHUNK + 2, CHUNK), (2 * CHUNK + 1, CHUNK), (2 * CHUNK + 2, 2 * CHUNK)],
)
def test_only_chunks_that_were_read_alone_are_shared(prompt, num_shared):
    """The last chunk before the pending token may be read beside it, and then its rows are those of another pass."""
    told = []
    cache = SimpleNamespace(length=lambda seq: prompt - 1, publish=lambda seq, salt, tokens: told.append(len(tokens)))
    SharedRows(cache, whole_texts=False).publish(sequence([1] * prompt))
    assert told == [num_shared]

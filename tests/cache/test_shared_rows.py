"""Which rows of a text are left to later ones, where the bits of a row depend on its pass."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from drafters.drafting import sequence

from outdraft.cache.shared_rows import SharedRows, num_common
from outdraft.core.cache import PAGE
from outdraft.core.sequence import CHUNK
from outdraft.options.params import SamplingParams


@pytest.mark.parametrize(
    ("prompt", "num_shared"),
    [(1, 0), (CHUNK, 0), (CHUNK + 1, 0), (CHUNK + 2, CHUNK), (2 * CHUNK + 1, CHUNK), (2 * CHUNK + 2, 2 * CHUNK)],
)
def test_only_chunks_that_were_read_alone_are_shared(prompt, num_shared):
    """The last chunk before the pending token may be read beside it, and then its rows are those of another pass."""
    told = []
    cache = SimpleNamespace(
        length=lambda seq: prompt - 1,
        num_published=lambda seq: max(0, num_shared // PAGE - 1),
        publish=lambda seq, salt, tokens: told.append(len(tokens)),
    )
    SharedRows(cache, whole_texts=False).publish(sequence([1] * prompt))
    assert told == [num_shared] * bool(num_shared)


def test_a_waiting_text_awaits_what_it_will_take_over():
    """The reader has read 32 rows of 200; the texts part at 100, and 64 rows are worth it."""
    reader, rows = sequence([1] * 200), SharedRows(SimpleNamespace(), whole_texts=True)
    reader.num_cached = 32
    same, longer, other = sequence([1] * 200), sequence([1] * 100 + [2] * 100), sequence([1] * 90 + [2] * 110)
    for number, one in enumerate((reader, same, longer, other)):
        one.id = number
    assert [rows.awaits(one, reader) for one in (same, longer, other)] == [True, True, False]
    reader.num_cached = 48
    assert [rows.awaits(one, reader) for one in (same, longer, other)] == [True, False, False]
    assert num_common([1] * 100 + [2] * 100, [1] * 200) == 100 and num_common([1] * 40, [1] * 70) == 40
    assert num_common([1] * 15 + [2], [1] * 200) == 0  # less than a page
    scored = sequence([1] * 200)
    scored.id, scored.request = 5, replace(scored.request, params=SamplingParams(prompt_logprobs=0))
    reader.num_cached = 0
    assert rows.awaits(same, reader) and not rows.awaits(scored, reader)  # who is scored takes nothing over
    short, twin = sequence([1] * 64), sequence([1] * 64)
    short.id, twin.id = 6, 7
    assert not rows.awaits(twin, short)  # the pending token is read by each, so 48 rows are all that there would be
    assert not SharedRows(SimpleNamespace(), whole_texts=False).awaits(same, reader)  # no chunk is left to anybody

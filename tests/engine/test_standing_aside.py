"""A request stands aside while one before it in order reads what both begin with; others join meanwhile."""

import pytest
from engine.test_scheduler import Pages, add, decodes, join_all, scheduler, sequence

from outdraft.core.request import Request


class Shared(Pages):
    """Twenty sevens are worth waiting for."""

    def awaits(self, seq, reader):
        return seq.tokens == reader.tokens == [7] * 20


def test_who_awaits_what_is_being_read_stands_aside_for_others():
    made, room = scheduler(), Shared(9)
    first, same, other = sequence([7] * 20, id=0), sequence([7] * 20, id=1), sequence([8] * 20, id=2)
    add(made, first, same, other)
    join_all(made, room)
    assert made.running == [first, other] and list(made.waiting) == [same]
    decodes(first)
    join_all(made, room)
    assert made.running == [first, other, same]


@pytest.mark.parametrize("mixes", [True, False])
def test_no_request_stands_aside_for_one_that_is_passed_over_or_comes_later(mixes):
    """The first prompt takes all rows; what the second would read is read by the third itself."""
    made, room = scheduler(max_num_batched_tokens=8), Shared(90, mixes=mixes)
    first, idle, same = sequence([8] * 900, id=0), sequence([7] * 20, id=1), sequence([7] * 20, id=2)
    idle.request = Request(prompt_token_ids=(7,) * 20, priority=1)
    same.request = Request(prompt_token_ids=(7,) * 20, priority=2)
    add(made, first, idle, same)
    join_all(made, room)
    assert made.running == [first, idle]
    assert made.choose(room).seqs == (first,)
    join_all(made, room)
    assert made.running == [first, idle, same]
    urgent = sequence([7] * 20, id=3, request=Request(prompt_token_ids=(7,) * 20, priority=-1))
    add(made, urgent)
    join_all(made, room)
    assert urgent in made.running

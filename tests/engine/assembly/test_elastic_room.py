"""What is checked while an elastic engine holds no weights meets the bound of memory when it is admitted."""

from dataclasses import replace

import pytest
from engine.assembly.test_elastic import Machine, engine_on, request

from outdraft.core.room import Unbounded
from outdraft.options.errors import RequestError


class TwoPages(Unbounded):
    """Memory of two pages, none of them held."""

    capacity, free = 32, 2


@pytest.mark.logs_faults
def test_what_is_asked_while_no_weights_are_held_is_bound_by_the_memory_that_comes():
    machine, good = Machine(), Machine().load
    engine = engine_on(machine, isolates=True)
    engine.composition.let_go()
    engine._empty = True
    too_long, endless = engine.add(request(max_tokens=100)), engine.add(request(max_tokens=None))
    engine._load = lambda level: replace(good(level), parts=replace(good(level).parts, room=TwoPages()))
    events = engine.step()
    assert too_long.finish_reason == "error" and not too_long.num_output
    (error,) = [event.error for event in events if event.error is not None]
    assert isinstance(error, RequestError) and "max_tokens=100 never fit: the key/value cache holds 32" in str(error)
    while engine.has_work:
        engine.step()
    assert endless.finish_reason == "length" and len(endless.tokens) == 33

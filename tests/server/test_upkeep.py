"""What a server that runs for days asks of Python and of the C library."""

import asyncio
import gc
import sys
from threading import current_thread, enumerate

import pytest

from outdraft.server import upkeep


class Library:
    """A C library that notes what it is asked. `frees`: bytes that go back to the system with the next trim."""

    def __init__(self):
        self.asked, self.resident = [], 100 << 20

    def mallopt(self, name, value):
        self.asked.append((name, value))

    def malloc_trim(self, keep):
        self.asked.append(("trim", keep, self.resident >> 20))
        self.resident = 100 << 20


@pytest.fixture
def library(monkeypatch):
    made = Library()
    monkeypatch.setattr(upkeep, "c_library", lambda wanted: made)
    monkeypatch.setattr(upkeep, "_resident", lambda: made.resident)
    monkeypatch.setattr(upkeep, "EVERY", 0.0)
    return made


@pytest.fixture(autouse=True)
def interval():
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)
    gc.unfreeze()


def test_turns_are_short_heaps_are_few_and_readers_too(library):
    async def run():
        before = {*enumerate()}
        gc.unfreeze()
        upkeep.prepare()
        assert gc.get_freeze_count() > 10_000
        begun = {*enumerate()} - before
        assert sum(one.name.startswith("outdraft-texts") for one in begun) == upkeep.READERS
        return {await asyncio.to_thread(lambda: current_thread().name) for _ in range(20)}

    names = asyncio.run(run())
    assert sys.getswitchinterval() == pytest.approx(upkeep.TURN) and library.asked == [(-8, upkeep.HEAPS)]
    assert len(names) <= upkeep.READERS and all(name.startswith("outdraft-texts") for name in names)


def test_what_is_free_goes_back_once_the_process_has_grown(library):
    async def run():
        looking = asyncio.ensure_future(upkeep.give_back_for_ever())
        for mib in (100, 110, 140, 130, 100, 200):  # 16 MiB more than the least are growth
            library.resident = mib << 20
            for _ in range(50):
                await asyncio.sleep(0.0005)
        looking.cancel()

    asyncio.run(run())
    assert library.asked == [("trim", 0, 140), ("trim", 0, 130), ("trim", 0, 200)]


def test_growth_counts_from_the_least_that_was_seen(library):
    async def run():
        looking = asyncio.ensure_future(upkeep.give_back_for_ever())
        for mib in (100, 60, 80):
            library.resident = mib << 20
            for _ in range(50):
                await asyncio.sleep(0.0005)
        looking.cancel()

    asyncio.run(run())
    assert library.asked == [("trim", 0, 80)]


def test_a_system_that_cannot_has_nothing_to_do(monkeypatch):
    monkeypatch.setattr(upkeep, "c_library", lambda wanted: None)
    asyncio.run(asyncio.wait_for(upkeep.give_back_for_ever(), 5))


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
def test_this_system_can():
    assert upkeep.c_library("malloc_trim") is not None and upkeep.c_library("no such function") is None
    assert upkeep._resident() > 10 << 20

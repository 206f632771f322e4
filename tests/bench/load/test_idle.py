"""Waiting for sleep: as long as time is used, not longer, and not for ever."""

import os

from outdraft.bench.load.processes import LONGEST, STEP, read_ticks, wait_until_idle


def wait(*ticks: int | None) -> tuple[bool, int]:
    """What it returns, and how often it slept, where the clock shows `ticks` and stays at the last."""
    slept: list[float] = []
    told = list(ticks)
    result = wait_until_idle([1], lambda pids: told.pop(0) if len(told) > 1 else told[0], slept.append)
    return result, len(slept)


def test_waits_while_time_is_used():
    assert wait(5, 5) == (True, 1)
    assert wait(5, 6, 8, 8) == (True, 3)


def test_gives_up():
    assert wait(*range(10_000)) == (False, round(LONGEST / STEP))


def test_a_pause_where_nothing_is_known():
    assert wait(None) == (True, 1)


def test_reads_our_own_clock():
    before = read_ticks([os.getpid()])
    if before is not None:
        while read_ticks([os.getpid()]) == before:  # ends as soon as the clock counts this loop
            pass
    assert read_ticks([2**30]) is None

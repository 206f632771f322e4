"""A peer on the clock: who must sleep before it begins and after it ends, and what a text without words is."""

import os
from typing import Any

import pytest

from lab.bench.peers import entrant
from lab.bench.peers.entrant import PeerEntrant
from outdraft.bench.load.over_http import PeerError
from outdraft.options.params import SamplingParams

PARAMS = SamplingParams(max_tokens=3, ignore_eos=True)


class Line:
    """Stands for a process: notes what happens in order."""

    name = "fake"

    def __init__(self, tokens: list[int]) -> None:
        self.happened: list[Any] = []
        self.tokens = tokens

    def ask(self, verb: str, **given: Any) -> dict[str, Any]:
        self.happened.append(verb)
        return {"tokens": self.tokens, "seconds": 1.0, "first_seconds": 0.5, "num_first": 1}


def make(line: Line, monkeypatch: pytest.MonkeyPatch, *, falls_asleep: bool = True) -> PeerEntrant:
    def wait(pids: list[int]) -> bool:
        line.happened.append(pids)
        return falls_asleep

    monkeypatch.setattr(entrant, "wait_until_idle", wait)
    return PeerEntrant(line, [77, 78], {})  # type: ignore[arg-type]


def test_one_works_at_a_time(monkeypatch: pytest.MonkeyPatch):
    line = Line([4, 5, 6])
    timed = make(line, monkeypatch).time_text([1], PARAMS)
    assert line.happened == [[os.getpid()], "generate", [77, 78]]
    assert (timed.token_ids, timed.seconds, timed.stats.num_steps) == ((4, 5, 6), 1.0, 0)


def test_one_that_goes_on_working_is_an_error(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(PeerError, match="still uses the processor"):
        make(Line([4]), monkeypatch, falls_asleep=False).time_text([1], PARAMS)


def test_nothing_written_is_an_error(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(PeerError, match="wrote nothing after 2 tokens"):
        make(Line([]), monkeypatch).time_text([1, 2], PARAMS)


@pytest.mark.parametrize(("first", "told", "counted"), [(1, 8, 8), (9, 7, 8), (1, None, 0), (9, None, 0)])
def test_passes_are_counted_in_our_unit(monkeypatch: pytest.MonkeyPatch, first: int, told: int | None, counted: int):
    """64 tokens, drafts of eight all right: the prompt's pass and seven more, even if the prompt's verifies too."""
    line = Line([4] * 64)
    answer = {"tokens": line.tokens, "seconds": 1.0, "first_seconds": 0.5, "num_first": first, "passes": told}
    monkeypatch.setattr(line, "ask", lambda verb, **given: answer)
    assert make(line, monkeypatch).time_text([1], PARAMS).stats.num_steps == counted

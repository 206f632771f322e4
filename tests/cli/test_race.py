"""A race shows what was recorded: each text alone, at the speed at which it was written."""

import io
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from rich.console import Console

from outdraft import SamplingParams
from outdraft.cli import race as module
from outdraft.cli.race import race
from outdraft.core.events import Source


class Clock:
    """Seconds that pass where a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Writer:
    """Stands in for an engine: three pieces, `pace` seconds apart."""

    def __init__(self, clock: Clock, name: str, pace: float, log: list[str]) -> None:
        self.clock, self.name, self.pace, self.log = clock, name, pace, log
        self.tokenizer = SimpleNamespace(stream=lambda: SimpleNamespace(push=lambda token: "x"))

    def generate(self, given: object, params: SamplingParams) -> None:
        self.clock.now += 100.0  # warming up is on no clock

    def forget(self) -> None:
        self.log.append(f"{self.name} forgets")

    def stream(self, given: object, params: SamplingParams) -> Iterator[SimpleNamespace]:
        for number in range(3):
            self.clock.now += self.pace
            self.log.append(f"{self.name} {number}")
            yield SimpleNamespace(token_ids=(7,), sources=(Source.PLAIN,), text="x")


@pytest.fixture
def clock(monkeypatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "perf_counter", lambda: made.now)
    monkeypatch.setattr(module, "sleep", made.sleep)
    return made


@pytest.mark.parametrize("width, is_terminal", [(120, True), (60, True), (120, False)])
def test_each_text_is_timed_alone(clock: Clock, width: int, is_terminal: bool):
    log: list[str] = []
    engines = {"slow": Writer(clock, "slow", 2.0, log), "quick": Writer(clock, "quick", 0.5, log)}
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=is_terminal, color_system=None, legacy_windows=False)
    race(console, "ask", engines, SamplingParams())
    parts = ("forgets", "0", "1", "2")
    assert log == [f"{name} {part}" for name in ("slow", "quick") for part in parts], "one after the other"
    last = file.getvalue()[-2000:]
    for summary in ("3 tokens in 3 passes, 6.00 s, 0 tokens/s", "3 tokens in 3 passes, 1.50 s, 2 tokens/s"):
        assert summary in last

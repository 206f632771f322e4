"""What the engine itself does in a round of one text: `python -m lab.calls`.

    calls     Python calls of our own functions, each resumed generator among them
    C calls   what these functions call of Python, PyTorch and ctypes that is written in C
    own us    processor microseconds of the engine's thread, without those in kernels; the median of some texts

A round is what the engine's thread does from one `Engine.step` to the next, and what the caller's thread does with its
event. The first ten rounds of a text, and those behind the hundredth, do not count; nor does the engine's first text,
in which a policy tries its arms.

Calls are counted on a clock that kernels move, so that a policy, which chooses by seconds, always does the same.
"""

import argparse
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from statistics import mean, median
from time import thread_time
from types import CodeType, FrameType
from typing import Any
from unittest.mock import patch

from lab.walk import HOME, PROMPT
from outdraft import LLM, SamplingParams
from outdraft.engine.callers.writer import Writer
from outdraft.engine.loop import Engine
from outdraft.kernels.library import require_library

DRAFTERS = ("none", "ngram", "default")
KERNELS = ("od_guesser_feed", "od_guesser_chain", "od_best_tokens")  # what a greedy round computes with
FIRST, LAST = 10, 100
_BEFORE = "def fib(n):\n"
_TEXT = SamplingParams(max_tokens=128, temperature=0, ignore_eos=True)


@dataclass(slots=True, kw_only=True)
class Side:
    """One thread's calls, round after round. `begins`: the function that a round begins with."""

    begins: CodeType
    calls: list[Counter[str]] = field(default_factory=list)  # "file:function" -> times
    in_c: list[Counter[str]] = field(default_factory=list)  # "file:function -> what it calls" -> times
    before: int = 0  # rounds of earlier texts

    def begin(self) -> None:
        """Another text: the rounds so far do not count. The thread may still be in the last of them."""
        self.before = len(self.calls)

    def note(self, frame: FrameType, event: str, called: Any) -> None:
        """A profiler, for `sys.setprofile`."""
        code = frame.f_code
        if event == "call" and code is self.begins:
            self.calls.append(Counter())
            self.in_c.append(Counter())
        if not self.calls or not code.co_filename.startswith(HOME):
            return
        place = f"{code.co_filename.removeprefix(HOME)}:{code.co_qualname}"
        if event == "call":
            self.calls[-1][place] += 1
        elif event == "c_call":
            self.in_c[-1][f"{place} -> {called.__qualname__}"] += 1

    def means(self, rounds: list[Counter[str]]) -> dict[str, float]:
        """Of its calls, or of its calls in C: those of a round that counts."""
        counted = rounds[self.before + FIRST : min(self.before + LAST, len(rounds) - 1)]
        return {place: mean(one[place] for one in counted) for place in set().union(*counted)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """Means of a round, by place."""

    calls: dict[str, float]
    in_c: dict[str, float]

    @property
    def num_calls(self) -> float:
        return sum(self.calls.values())

    @property
    def num_in_c(self) -> float:
        return sum(self.in_c.values())


class _Clock:
    """Each reading takes 20 microseconds, a pass 0.8 ms and 20 microseconds a row, a guess of a network 0.4 ms."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 2e-5
        return self.now

    def passes(self, kernel: Callable[..., Any]) -> Callable[..., Any]:
        """The same kernel, which moves the clock."""
        seconds = {"od_guesser_feed": 8e-4, "od_guesser_chain": 4e-4}.get(kernel.__name__, 0.0)

        def timed(*given: Any) -> Any:
            self.now += seconds and seconds + 2e-5 * given[1]._obj.rows
            return kernel(*given)

        return timed


def counted(drafter: str) -> Rounds:
    """The calls of a round, on a clock of its own."""
    clock = _Clock()
    caller, engine = Side(begins=Writer.push.__code__), Side(begins=Engine.step.__code__)
    with patch("outdraft.decode.step.perf_counter", clock), _kernels(clock.passes), _llm(drafter) as llm:
        threading.setprofile(engine.note)  # the engine's thread begins with the text
        sys.setprofile(caller.note)
        try:
            llm.generate(_BEFORE, _TEXT)
            engine.begin()
            caller.begin()
            llm.generate(PROMPT, _TEXT)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    return Rounds(
        calls=engine.means(engine.calls) | caller.means(caller.calls),
        in_c=engine.means(engine.in_c) | caller.means(caller.in_c),
    )


def own_microseconds(drafter: str, num_texts: int) -> float:
    """Of a round of the engine's thread, without what kernels took."""
    in_kernels, marks = 0.0, list[float]()
    step = Engine.step

    def timed(kernel: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            nonlocal in_kernels
            began = thread_time()
            result = kernel(*given)
            in_kernels += thread_time() - began
            return result

        return call

    def marked(engine: Engine) -> Any:
        marks.append(thread_time() - in_kernels)
        return step(engine)

    found = []
    with _kernels(timed), patch.object(Engine, "step", marked), _llm(drafter) as llm:
        llm.generate(_BEFORE, _TEXT)
        for _ in range(num_texts):
            marks.clear()
            llm.generate(PROMPT, _TEXT)
            counted = marks[FIRST : LAST + 1]
            found.append((counted[-1] - counted[0]) / (len(counted) - 1))
    return 1e6 * median(found)


@contextmanager
def _llm(drafter: str) -> Iterator[LLM]:
    """An engine that knows nothing of earlier ones."""
    words: dict[str, Any] = {} if drafter == "default" else {"drafter": drafter}
    with patch.dict(os.environ, OUTDRAFT_REMEMBER="off"), LLM("zoo:target", **words) as llm:
        yield llm


@contextmanager
def _kernels(wrapped: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    native = require_library()
    with ExitStack() as stack:
        for name in KERNELS:
            stack.enter_context(patch.object(native, name, wrapped(getattr(native, name))))
        yield


def main(words: list[str] | None = None) -> int:
    """Print a line for each drafter."""
    parser = argparse.ArgumentParser(prog="python -m lab.calls", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--drafter", choices=DRAFTERS, action="append", help="may be repeated; all without")
    parser.add_argument("--texts", type=int, default=9, help="how many texts are timed; 0: none")
    parser.add_argument("--places", type=int, default=0, help="name so many places with the most calls")
    options = parser.parse_args(words)
    lines = ["| drafter | calls | C calls | own us |", f"|{' --- |' * 4}"]
    for drafter in options.drafter or DRAFTERS:
        rounds = counted(drafter)
        spent = f"{own_microseconds(drafter, options.texts):.0f}" if options.texts else ""
        lines.append(f"| {drafter} | {rounds.num_calls:.1f} | {rounds.num_in_c:.1f} | {spent} |")
        for found in (rounds.calls, rounds.in_c):
            ranked = sorted(found.items(), key=lambda one: (-one[1], one[0]))[: options.places]
            lines += [f"    {number:6.2f} {place}" for place, number in ranked]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

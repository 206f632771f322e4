"""`python -m lab.bench.default MODEL ...`: what `LLM(MODEL)` drafts by default, against plain decoding.

For each batch size, temperature and kind of text both engines write the same requests, seeded, over one copy of the
weights. A first time is compared and not timed (the policy learns there what this text is like). Then come the rounds,
in which the two take turns to begin. Shown is plain seconds / own seconds: the median over rounds and the worst round,

    clock   until the last text of the batch is written
    work    that processors worked, which says more beside busy neighbours
    a text  until a text is written, the mean over the batch: where some texts are guessed well they end long before the
            others, whose passes hardly become cheaper then
"""

import argparse
import random
import sys
import time
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from itertools import product
from statistics import mean, median
from typing import Any

from outdraft.bench.machine import busy_note
from outdraft.bench.made import make_model
from outdraft.bench.neighbours import busy_neighbours
from outdraft.bench.shelf import Shelf
from outdraft.bench.suites.workloads import workload
from outdraft.core.decisions import Decisions
from outdraft.core.events import StepEvent
from outdraft.core.sequence import Sequence
from outdraft.engine.between_steps import listen
from outdraft.engine.llm import LLM
from outdraft.options.errors import OutdraftError
from outdraft.options.params import SamplingParams

TEXTS = ("prose", "code", "random")
_RANDOM_LEN = 48  # tokens of a prompt of random ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One batch size, temperature and kind of text."""

    batch: int
    temperature: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Plain seconds / own seconds of every round, as above; whether all texts were the same."""

    clock: tuple[float, ...]
    work: tuple[float, ...]
    a_text: tuple[float, ...]
    same: bool
    tau: float  # tokens per pass of the target


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """One engine's texts, and the seconds that they took."""

    texts: list[tuple[int, ...]]
    clock: float
    work: float
    a_text: float
    tau: float


class _Ends:
    """When texts ended: a watch of the engine."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def ended(self, seq: Sequence, now: float) -> None:
        self.at.append(time.perf_counter())

    def asked(self, seq: Sequence, now: float) -> None: ...
    def refused(self, seq: Sequence, now: float) -> None: ...
    def passed(self, decisions: Decisions, events: Seq[StepEvent], now: float, seconds: float) -> None: ...


def requests(cell: Cell, vocab: int, max_tokens: int) -> tuple[list[Any], list[SamplingParams]]:
    """`batch` prompts of the kind, in turn where there are fewer, and seeded settings."""
    rng = random.Random(cell.text)
    if cell.text == "random":
        ids = [[rng.randrange(vocab) for _ in range(_RANDOM_LEN)] for _ in range(cell.batch)]
        prompts: list[Any] = [{"prompt_token_ids": one} for one in ids]
    else:
        found = [one.turns[0] for one in workload(cell.text)]
        prompts = [found[i % len(found)] for i in range(cell.batch)]
    plain = SamplingParams(max_tokens=max_tokens, temperature=cell.temperature, ignore_eos=True)
    return prompts, [replace(plain, seed=i) if cell.temperature else plain for i in range(cell.batch)]


def measure(plain: LLM, default: LLM, cell: Cell, *, vocab: int, max_tokens: int, rounds: int) -> Outcome:
    """Measure both engines, with and without speculation, on one cell of the table."""
    prompts, params = requests(cell, vocab, max_tokens)
    engines = (plain, default)

    def write(engine: LLM) -> _Written:
        engine.forget()  # drafters remember answers, and would copy this text from its first time
        ends = _Ends()
        stop = listen(engine, lambda _: ends)
        clock, work = time.perf_counter(), time.process_time()
        results = engine.generate(prompts, params)
        seconds, worked = time.perf_counter() - clock, time.process_time() - work
        stop()
        return _Written(
            texts=[one.token_ids for one in results],
            clock=seconds,
            work=max(worked, 1e-9),
            a_text=mean(ends.at) - clock,
            tau=sum(one.stats.num_tokens for one in results) / sum(one.stats.num_steps for one in results),
        )

    wanted = write(plain).texts
    told = [{default: write(default)}]
    told += [{engine: write(engine) for engine in (engines if turn % 2 else engines[::-1])} for turn in range(rounds)]
    same = all(one.texts == wanted for turn in told for one in turn.values())
    pairs = [(turn[plain], turn[default]) for turn in told[1:]]
    return Outcome(
        clock=tuple(one.clock / other.clock for one, other in pairs),
        work=tuple(one.work / other.work for one, other in pairs),
        a_text=tuple(one.a_text / other.a_text for one, other in pairs),
        same=same,
        tau=median(other.tau for _, other in pairs),
    )


def cells(batches: Seq[int], temperatures: Seq[float], texts: Seq[str]) -> Iterator[Cell]:
    """All of them, small batches first."""
    for batch, temperature, text in product(batches, temperatures, texts):
        yield Cell(batch=batch, temperature=temperature, text=text)


def _row(cell: Cell, told: Outcome) -> str:
    seconds = "".join(f"{median(one):7.2f}x {min(one):5.2f}x" for one in (told.clock, told.work, told.a_text))
    said = "" if told.same else "   ANOTHER TEXT"
    return f"{cell.batch:5d} {cell.temperature:5.1f} {cell.text:7}{seconds} {told.tau:8.2f}{said}\n"


def main(words: list[str] | None = None) -> int:
    """Measure and show; 1 if a text was another one."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.default", description="The default against plain.")
    parser.add_argument("model", nargs="+", help="a directory, a GGUF file, or zoo:NAME[@WIDTHxDEPTH][@int8]")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32], metavar="B")
    parser.add_argument("--temperature", type=float, nargs="+", default=[0.0, 0.8, 1.2], metavar="T")
    parser.add_argument("--text", nargs="+", default=list(TEXTS), choices=TEXTS)
    parser.add_argument("--max-tokens", type=int, default=48, metavar="N", help="tokens of a text (default: 48)")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="timed rounds (default: 5)")
    parser.add_argument("--neighbours", type=int, default=0, metavar="N", help="busy programs beside it (default: 0)")
    parser.add_argument("--cache", metavar="DIR", help="where made models are kept")
    asked = parser.parse_args(words)
    same = True
    try:
        for name in asked.model:
            made = make_model(name, Shelf(asked.cache))
            plain = LLM(str(made.path), drafter="none")
            default = plain.with_speculation()
            vocab = plain.engine.parts.target.vocab_size
            beside = f" Beside {asked.neighbours} busy programs." if asked.neighbours else ""
            sys.stdout.write(f"{name}: {default.config['drafter']['name']}. {busy_note()}{beside}\n")
            sys.stdout.write("batch     T text      clock  worst    work  worst  a text  worst  tokens a pass\n")
            with busy_neighbours(asked.neighbours):
                for cell in cells(asked.batch, asked.temperature, asked.text):
                    told = measure(plain, default, cell, vocab=vocab, max_tokens=asked.max_tokens, rounds=asked.rounds)
                    same = same and told.same
                    sys.stdout.write(_row(cell, told))
                    sys.stdout.flush()
    except OutdraftError as error:
        sys.stderr.write(f"outdraft: {error}\n")
        return 2
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())

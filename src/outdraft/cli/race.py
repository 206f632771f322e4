"""The same text twice, plain and speculative, as it is written: two panes on a wide terminal, one after the other else.

In two panes both streams run in one thread, and the one whose own clock is behind goes on: what is seen is the race as
two undisturbed machines would run it. Only the time inside the engine is on the clocks; drawing is not.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from outdraft.cli.console import has_style
from outdraft.cli.streamed import Colours, paint
from outdraft.engine.llm import LLM
from outdraft.options.params import SamplingParams

if TYPE_CHECKING:
    from outdraft.engine.callers.result import Chunk

WIDE = 100  # columns from which two panes fit
REDRAW = 0.05  # seconds between two drawings, at least


@dataclass(slots=True)
class RaceRunner:
    """One of the two streams, with its own clock."""

    title: str
    stream: "Iterator[Chunk]"
    colours: Colours
    prompt: str
    marks: bool  # no colours: accepted drafts in brackets
    written: Text = field(default_factory=Text)
    piece: Text = field(default_factory=Text)  # what the last pass added
    seconds: float = 0.0
    num_tokens: int = 0
    num_passes: int = 0
    finished: bool = False

    def advance(self) -> None:
        began = perf_counter()
        chunk = next(self.stream, None)
        self.seconds += perf_counter() - began
        if chunk is None:
            self.finished = True
            return
        self.num_tokens += len(chunk.token_ids)
        self.num_passes += 1
        self.piece = paint(self.colours.take(chunk), marks=self.marks)
        self.written.append_text(self.piece)

    def summary(self) -> str:
        speed = self.num_tokens / self.seconds if self.seconds else 0.0
        passes = f"{self.num_tokens} tokens in {self.num_passes} passes"
        return f"{passes}, {self.seconds:.2f} s, {speed:.0f} tokens/s"

    def panel(self) -> Panel:
        text = Text().append(self.prompt, style="dim").append_text(self.written)
        edge = "bold" if self.finished else "dim"
        return Panel(text, title=self.title, subtitle=self.summary(), border_style=edge, title_align="left")


def race(
    console: Console,
    prompt: str,
    engines: dict[str, LLM],
    params: SamplingParams,
    *,
    asked: dict[str, Any] | None = None,
) -> None:
    """Show every engine of `engines` (title -> engine) continuing `prompt`. `asked`: what is read in its place."""
    runners = []
    for title, llm in engines.items():
        assert llm.tokenizer is not None
        given: Any = prompt if asked is None else asked
        llm.generate(given, SamplingParams(max_tokens=24))  # the first passes pay for things that are done once
        llm.forget()  # what was written of it before would be copied
        stream = llm.stream(given, params)
        runners.append(RaceRunner(title, stream, Colours(llm.tokenizer), prompt, marks=not has_style(console)))
    if console.is_terminal and not console.is_dumb_terminal and console.width >= WIDE:
        _side_by_side(console, runners)
    else:
        _in_turn(console, runners)


def _side_by_side(console: Console, runners: list[RaceRunner]) -> None:
    drawn = 0.0
    with Live(console=console, auto_refresh=False, vertical_overflow="visible") as live:
        while unfinished := [runner for runner in runners if not runner.finished]:
            min(unfinished, key=lambda runner: runner.seconds).advance()
            if perf_counter() - drawn > REDRAW:
                live.update(_grid(runners), refresh=True)
                drawn = perf_counter()
        live.update(_grid(runners), refresh=True)


def _grid(runners: list[RaceRunner]) -> Table:
    grid = Table.grid(expand=True, padding=(0, 1))
    for _ in runners:
        grid.add_column(ratio=1)
    grid.add_row(*(runner.panel() for runner in runners))
    return grid


def _in_turn(console: Console, runners: list[RaceRunner]) -> None:
    for runner in runners:
        console.print(Text(f"{runner.title}: ", style="bold"), end="")
        console.print(Text(runner.prompt, style="dim"), end="", soft_wrap=True)
        while not runner.finished:
            runner.advance()
            if not runner.finished:
                console.print(runner.piece, end="", soft_wrap=True)
                console.file.flush()
        console.print()
        console.print(Text(f"({runner.summary()})", style="dim"))
        console.print()

"""The same text twice, plain and speculative: two panes on a wide terminal, one after the other else.

Each is written alone, with the machine to itself, and each of its pieces is timed as it comes. Then what was recorded
is shown at the speed at which it was written, both from one start: the race as two undisturbed machines would run it.
"""

from dataclasses import dataclass, field
from time import perf_counter, sleep
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from outdraft.cli.console import has_style
from outdraft.cli.streamed import Colours, paint
from outdraft.engine.callers.result import Chunk
from outdraft.engine.llm import LLM
from outdraft.options.params import SamplingParams

WIDE = 100  # columns from which two panes fit
WARM = 64  # tokens of another text before the race
REDRAW = 0.05  # seconds between two drawings


@dataclass(slots=True)
class RaceRunner:
    """One of the two texts, as far as it is shown."""

    title: str
    prompt: str
    colours: Colours
    marks: bool  # no colours: accepted drafts in brackets
    recorded: list[tuple[float, Chunk]]  # seconds since the request began, and what came then
    written: Text = field(default_factory=Text)
    piece: Text = field(default_factory=Text)  # what the last pass added
    seconds: float = 0.0
    num_tokens: int = 0
    num_passes: int = 0

    @property
    def finished(self) -> bool:
        return self.num_passes == len(self.recorded)

    @property
    def due(self) -> float:
        """When the next piece came."""
        return self.recorded[self.num_passes][0]

    def advance(self) -> None:
        self.seconds, chunk = self.recorded[self.num_passes]
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
    given: Any = prompt if asked is None else asked
    runners = []
    with console.status("writing both texts, one after the other"):
        for title, llm in engines.items():
            assert llm.tokenizer is not None
            llm.generate(given, SamplingParams(max_tokens=WARM))  # what is done once is done, and each drafter tried
            llm.forget()  # what was written of it before would be copied
            began = perf_counter()
            recorded = [(perf_counter() - began, chunk) for chunk in llm.stream(given, params)]
            runners.append(RaceRunner(title, prompt, Colours(llm.tokenizer), not has_style(console), recorded))
    if console.is_terminal and not console.is_dumb_terminal and console.width >= WIDE:
        _side_by_side(console, runners)
    else:
        _in_turn(console, runners)


def _side_by_side(console: Console, runners: list[RaceRunner]) -> None:
    began = perf_counter()
    with Live(console=console, auto_refresh=False, vertical_overflow="visible") as live:
        while any(not runner.finished for runner in runners):
            clock = perf_counter() - began
            for runner in runners:
                while not runner.finished and runner.due <= clock:
                    runner.advance()
            grid = Table.grid(expand=True, padding=(0, 1))
            for _ in runners:
                grid.add_column(ratio=1)
            grid.add_row(*(runner.panel() for runner in runners))
            live.update(grid, refresh=True)
            sleep(REDRAW)


def _in_turn(console: Console, runners: list[RaceRunner]) -> None:
    for runner in runners:
        console.print(Text(f"{runner.title}: ", style="bold"), end="")
        console.print(Text(runner.prompt, style="dim"), end="", soft_wrap=True)
        while not runner.finished:
            if console.is_terminal:
                sleep(runner.due - runner.seconds)
            runner.advance()
            console.print(runner.piece, end="", soft_wrap=True)
            console.file.flush()
        console.print()
        console.print(Text(f"({runner.summary()})", style="dim"))
        console.print()

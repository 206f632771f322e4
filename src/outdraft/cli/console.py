"""The one place that writes to the terminal: rich when it is one, plain text when it is not.

No escape sequence reaches a pipe or a file, nor a terminal whose user set NO_COLOR (https://no-color.org).
"""

import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.text import Text

from outdraft.core.events import Source

STYLES = {
    Source.ACCEPTED: "green",
    Source.RECOVERED: "yellow",
    Source.BONUS: "cyan",
    Source.PLAIN: "",
    Source.RESUMED: "dim",
}
MEANINGS = {
    Source.ACCEPTED: "accepted draft",
    Source.RECOVERED: "recovered after a rejection",
    Source.BONUS: "bonus after a whole draft",
    Source.PLAIN: "plain, nothing drafted",
    Source.RESUMED: "written before, elsewhere",
}


class _Pipe(Console):
    """Leaves it to `main` what the exit code is where the reader of a pipe has left."""

    def on_broken_pipe(self) -> None:
        """Called where rich has caught the error: it goes on."""
        raise


def make_console(*, stderr: bool = False) -> Console:
    """A console on stdout or stderr."""
    bare = bool(os.environ.get("NO_COLOR"))
    return _Pipe(stderr=stderr, highlight=False, soft_wrap=False, color_system=None if bare else "auto")


def has_style(console: Console) -> bool:
    """Whether colours will be seen."""
    return console.color_system is not None and console.is_terminal


def say(console: Console, line: str, style: str | None = None) -> None:
    """A line as it stands: no markup is read in it, and only the terminal folds it."""
    console.print(line, style=style, markup=False, soft_wrap=True)


def write_json(data: Any) -> None:
    """Machine output: one JSON value on stdout, nothing else."""
    sys.stdout.write(json.dumps(data, ensure_ascii=False, indent=2) + "\n")


def lossy_note(verifier: str) -> str:
    """Of a rule that does not keep the target's distribution."""
    return f"LOSSY: with these options verifier {verifier} does not keep the target's distribution; 'auto' does"


def legend() -> Text:
    """Which colour means what."""
    shown = [source for source in Source if source != Source.RESUMED]  # no command begins with one
    parts = [Text("■ ", style=STYLES[source] or "default") + Text(MEANINGS[source]) for source in shown]
    return Text("   ").join(parts)


class _Lines(logging.Handler):
    """A line on stderr for each record: dim, or as a warning."""

    def emit(self, record: logging.LogRecord) -> None:
        style = "dim" if record.levelno < logging.WARNING else "yellow"
        say(make_console(stderr=True), record.getMessage(), style=style)


@contextmanager
def notes_shown() -> Iterator[None]:
    """Inside, what loading a model reports (the log `outdraft.notes`) goes to stderr.

    Such are drafts that were found beside the model, and names that change nothing.
    """
    log, lines = logging.getLogger("outdraft.notes"), _Lines()
    level = log.level
    log.addHandler(lines)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.setLevel(level)
        log.removeHandler(lines)


@contextmanager
def progress_bar(console: Console, total: int, unit: str) -> Iterator[Callable[[str, int], None]]:
    """A bar for long work, on a terminal only; nothing is written to a pipe or a file.

    Yields tell(message, n): what is done now, and how many units are done with.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
        TextColumn("{task.description}", style="dim", markup=False),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total)

        def tell(message: str, done: int) -> None:
            bar.update(task, advance=done, description=message or None)

        yield tell


def taps_line(taps: Seq[int]) -> str:
    """Which states of the target a draft reads, in both ways in which projects count its layers."""
    outputs = [tap - 1 for tap in taps]
    embeddings = "; -1: its embeddings" if -1 in outputs else ""
    return (
        f"reads the target's states after {list(taps)} layers (the outputs of layers {outputs}, counted from "
        f"0{embeddings})"
    )

"""A bar on the terminal while many prompts are written. Nothing reaches a pipe or a file unless it is asked for."""

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
MANY = 8  # prompts from which on a bar is shown unasked


def counted(calls: Iterable[T], total: int, *, wanted: bool | None) -> Iterator[T]:
    """The calls, with a bar that moves on when the next one is asked for. `wanted` None: at a terminal, for many."""
    if wanted is None:
        wanted = total >= MANY and sys.stderr is not None and sys.stderr.isatty()
    if not wanted:
        yield from calls
        return
    from rich.console import Console  # not before: most calls show nothing
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn("texts"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        for call in calls:
            yield call
            bar.advance(task)

"""A bar for long work, on a terminal only; nothing is written to a pipe or a file."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def progress_bar(console: Console, total: int, unit: str) -> Iterator[Callable[[str, int], None]]:
    """Yields tell(message, n): what is done now, and how many units are done with."""
    columns = (
        BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn(unit), TimeRemainingColumn(),
        TextColumn("{task.description}", style="dim"),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total)

        def tell(message: str, done: int) -> None:
            bar.update(task, advance=done, description=message or None)

        yield tell

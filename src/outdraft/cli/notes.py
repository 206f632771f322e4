"""What loading a model reports (the log `outdraft.notes`), shown to the user who typed the command."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from outdraft.cli.console import make_console


class _Lines(logging.Handler):
    """A line on stderr for each record: dim, or as a warning."""

    def emit(self, record: logging.LogRecord) -> None:
        style = "dim" if record.levelno < logging.WARNING else "yellow"
        make_console(stderr=True).print(record.getMessage(), style=style, markup=False, soft_wrap=True)


@contextmanager
def notes_shown() -> Iterator[None]:
    """Inside, notes go to stderr: drafts that were found beside the model, names that change nothing."""
    log, lines = logging.getLogger("outdraft.notes"), _Lines()
    level = log.level
    log.addHandler(lines)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.setLevel(level)
        log.removeHandler(lines)

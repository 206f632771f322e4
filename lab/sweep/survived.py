"""Errors that the engine survived: a drafter or policy that raises costs no text, so only the log reports it."""

import logging
import traceback

from outdraft.options.errors import OutdraftError


class Survived(logging.Handler):
    """While this is open, exceptions that outdraft logged instead of raising them, unless they are `OutdraftError`s."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.broke: list[BaseException] = []
        self.where = ""  # the last lines of the latest one's traceback

    def emit(self, record: logging.LogRecord) -> None:
        """Keep what broke, of a record that reports it."""
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, OutdraftError):
            self.broke.append(error)
            self.where = last_lines("".join(traceback.format_exception(error)))

    def __enter__(self) -> "Survived":
        logging.getLogger("outdraft").addHandler(self)
        return self

    def __exit__(self, *error: object) -> None:
        logging.getLogger("outdraft").removeHandler(self)


def last_lines(trace: str) -> str:
    """The end of a traceback, which is where the fault is."""
    return "\n".join(trace.splitlines()[-9:])[-1200:]

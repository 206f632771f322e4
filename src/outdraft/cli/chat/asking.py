"""What the user types: a line, or several; the lines of earlier conversations with the arrow keys.

    a line that ends with a backslash goes on in the next one
    three double quotes begin a text of any lines, which ends with three double quotes

A prompt is shown to people only. History is a file in the user's cache, unless that is switched off.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path

from outdraft.options.errors import RequestError
from outdraft.weights.user_cache import is_kept, user_cache

_BLOCK = '"""'
_MOST = 1000  # lines of the history


class Asker:
    """Reads standard input. `history`: None where nothing is kept."""

    def __init__(self) -> None:
        self.is_person = sys.stdin.isatty()
        self.history: Path | None = None
        if self.is_person:
            import readline  # line editing for input(), too

            self._readline = readline
            if is_kept():
                self.history = user_cache("chat_history")
                with suppress(OSError):
                    readline.read_history_file(self.history)
                readline.set_history_length(_MOST)

    def ask(self) -> str | None:
        """The next question or command; None at the end. Raises `KeyboardInterrupt` for Ctrl-C."""
        line = self._line("\n> ")
        if line is None:
            return None
        if line.lstrip().startswith(_BLOCK):
            return self._block(line.lstrip().removeprefix(_BLOCK))
        while line.endswith("\\"):
            more = self._line(". ")
            line = line[:-1] + ("" if more is None else f"\n{more}")
        return line

    def keep(self) -> None:
        """Write the history; a place that cannot be written to is left alone."""
        if self.history is not None:
            with suppress(OSError):
                self.history.parent.mkdir(parents=True, exist_ok=True)
                os.close(os.open(self.history, os.O_CREAT | os.O_WRONLY, 0o600))  # for its owner's eyes
                self._readline.write_history_file(self.history)

    def _block(self, line: str | None) -> str:
        lines = []
        while line is not None:
            if line.rstrip().endswith(_BLOCK):
                lines.append(line.rstrip().removesuffix(_BLOCK))
                break
            lines.append(line)
            line = self._line(". ")
        return "\n".join(lines).strip("\n")

    def _line(self, prompt: str) -> str | None:
        if self.is_person:
            try:
                return input(prompt)
            except EOFError:
                sys.stdout.write("\n")
                return None
        try:
            line = sys.stdin.readline()
        except UnicodeDecodeError as error:
            raise RequestError(f"standard input is not UTF-8 text: {error}") from error
        return line.removesuffix("\n") if line else None

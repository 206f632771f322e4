"""What a run reports while it goes on: lines for people, a log in JSON lines, a board. A team's first worker reports.

every step     its loss and its seconds are added up
now and then   a line: mean loss, tokens a second, time left
an evaluation  a line, and its numbers beside these in the log; then the mean begins anew

The log has one line for each step that was judged. What a run that was killed wrote behind its last checkpoint is
dropped when its steps come again.
"""

import json
from collections.abc import Callable, Mapping
from math import inf, isfinite
from pathlib import Path
from typing import Any

from outdraft.options.errors import ConfigError
from outdraft.options.new_file import new_file

Report = Callable[[str], None]
Board = Callable[[int, Mapping[str, Any]], None]  # a step, and its numbers
LOG = "log.jsonl"
_NOT_KNOWN = 1 << 29  # steps and more: the end of a run that is bounded by seconds, before its speed is known


class RunJournal:
    """The journal of one run. `leads`: whether this worker reports."""

    def __init__(self, run_dir: Path, report: Report, *, leads: bool, board: Board | None = None) -> None:
        self.report, self.board = report, board
        self._file, self._leads = run_dir / LOG, leads
        self._done, self._tokens, self._seconds = 0, 0, 0.0  # of the steps that this process did
        self._loss, self._steps = 0.0, 0  # sum of losses, and of how many steps, since the last evaluation

    def add(self, loss: float, seconds: float, tokens: int) -> None:
        """A step is done. `tokens`: that it learned from, over all workers."""
        self._loss, self._steps = self._loss + loss, self._steps + 1
        self._done, self._tokens, self._seconds = self._done + 1, self._tokens + tokens, self._seconds + seconds

    def running(self, steps_left: int) -> dict[str, float]:
        """Loss since the last evaluation, tokens a second and seconds left; nothing where no step was done since."""
        if not self._steps:
            return {}
        rate = self._tokens / max(self._seconds, 1e-9)
        left = steps_left * self._seconds / self._done
        return {"loss": self._loss / self._steps, "tokens_a_second": rate, "seconds_left": left}

    def say(self, line: str) -> None:
        if self._leads:
            self.report(line)

    def say_step(self, step: int, end: int) -> None:
        """Report how far it is. At least one step has been added since the last evaluation."""
        now = self.running(end - step)
        of, left = (f"/{end}", f", {_left(now)}") if end < _NOT_KNOWN else ("", "")
        self.say(f"step {step}{of} loss {now['loss']:.4f}; {now['tokens_a_second']:.0f} tokens/s{left}")

    def evaluated(self, step: int, end: int, line: str, numbers: Mapping[str, Any]) -> None:
        """Report the line, and write the numbers; the mean loss begins anew."""
        now = self.running(end - step)
        left = f"; {_left(now)}" if now and end < _NOT_KNOWN else ""
        self.say(f"step {step} {line}{left}")
        self._write(step, {**numbers, **now})
        self._loss, self._steps = 0.0, 0

    def _write(self, step: int, record: Mapping[str, Any]) -> None:
        if not self._leads:
            return
        record = {name: _finite(value) for name, value in record.items()}
        written = self._file.read_text(encoding="utf-8").splitlines() if self._file.exists() else []
        earlier = [line for line in written if _step_of(line) < step]
        if earlier != written:
            with new_file(self._file) as beside:
                beside.write_text("".join(f"{line}\n" for line in earlier), encoding="utf-8")
        with self._file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(record) + "\n")
        if self.board is not None:
            self.board(step, record)


def _finite(value: Any) -> Any:
    """The same with None for numbers that JSON does not have."""
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def _step_of(line: str) -> float:
    """Infinite for a line that was cut off while it was written."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return inf


def open_board(place: Path) -> Board:
    """What shows a step's numbers in TensorBoard; lists position by position.

    Raises `ConfigError` where TensorBoard is missing.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter  # it imports the package tensorboard
    except ImportError:
        raise ConfigError(
            f"tensorboard={str(place)!r} needs the package tensorboard: pip install outdraft[train]; the log in JSON "
            "lines is written without it"
        ) from None
    writer = SummaryWriter(str(place))  # type: ignore[no-untyped-call, unused-ignore]

    def show(step: int, numbers: Mapping[str, Any]) -> None:
        for name, value in numbers.items():
            parts = enumerate(value, 1) if isinstance(value, list | tuple) else ((None, value),)
            for position, one in parts:
                if isinstance(one, int | float) and name != "step":
                    tag = name if position is None else f"{name}/{position}"
                    writer.add_scalar(tag, one, step)  # type: ignore[no-untyped-call, unused-ignore]
        writer.flush()  # type: ignore[no-untyped-call, unused-ignore]

    return show


def _left(now: Mapping[str, float]) -> str:
    return f"{now['seconds_left'] / 60:.1f} min left"

"""How many rows of prompts a pass may take while others decode, from what passes took.

    a round of decoding rows alone      quiet seconds, by the number of sequences
    a pass with prompt rows beside      quiet + share / (1 - share) * quiet

So a pass lasts 1 / (1 - share) quiet rounds, however long the prompt. What prompts did not use of their share is saved
up, to one second: while some is left a pass may last some 1.7 quiet rounds, so that short prompts are read at once.
What they took beyond it they owe: then they wait for a round.

Rows beside others cost little at first and more later, so their number is found by small steps: a pass that took less
than it might is followed by a larger one, and one that took more by a smaller one.
"""

_WEIGHT = 0.25  # of the newest measurement
_FIRST = 32  # prompt rows beside decoding ones at first, at most
_SAVED = 1.0  # seconds for prompts that may be saved up, or owed
_BURST = 0.7  # quiet rounds that a chunk may take while some are left
_LESS, _MORE = 1 / 1.2, 1.2  # steps from one pass to the next, as large down as up: noise cancels out
_LEAST = 0.7  # of the rows that the budget would pay for alone
_REFRESH = 16  # every so many passes prompts wait, so that the quiet round is measured again


class Pace:
    """Seconds by what was in a pass. `share`: of the time, for prompts."""

    def __init__(self, share: float) -> None:
        self._ratio = share / (1 - share)
        self._quiet: dict[int, float] = {}  # bit length of the number of sequences -> seconds of a round
        self._row: float | None = None  # seconds of a prompt row where nothing is beside it
        self._rows: float | None = None  # of prompts beside others, as they were last right
        self._budget = 0.0  # seconds for which they were right
        self._saved = _SAVED
        self._owed = 0.0  # seconds of decoding before the next chunk, where chunks are read alone
        self._mixed = 0  # passes since the last quiet one

    def rows(self, num_decoding: int, most: int) -> int:
        """Prompt rows for a pass beside so many decoding sequences; 0: let them decode alone once."""
        quiet = self._quiet.get(num_decoding.bit_length())
        if quiet is None or self._mixed >= _REFRESH or self._saved < -self._ratio * quiet:
            return 0
        budget = min(max(self._ratio, _BURST) * quiet, self._ratio * quiet + max(0.0, self._saved))
        if self._rows is None:
            self._rows = min(_FIRST, budget / self._row) if self._row else _FIRST
        elif self._budget:
            self._rows *= max(_LESS, min(_MORE, budget / self._budget))
        if self._row:  # beside others a row costs hardly more than alone, whatever a noisy machine says
            self._rows = max(self._rows, _LEAST * budget / self._row)
        self._budget = budget
        return max(1, min(most, round(self._rows)))

    @property
    def prompts_are_due(self) -> bool:
        """Whether a chunk may be read now, alone: those who decode have had their share since the last one."""
        return self._owed <= 0

    def saw(self, num_decoding: int, num_rows: int, seconds: float) -> None:
        """A pass over so many decoding sequences and prompt rows took so long."""
        kind = num_decoding.bit_length()
        if not num_rows:
            self._quiet[kind] = _mean(self._quiet.get(kind), seconds)
            self._save(self._ratio * seconds)
            self._owed -= seconds
            self._mixed = 0
        elif not num_decoding:
            self._row = _mean(self._row, seconds / num_rows)
            self._owed = seconds / self._ratio
        else:
            self._mixed += 1
            quiet = self._quiet.get(kind, seconds)
            self._save(self._ratio * quiet - (seconds - quiet))
            self._step(num_rows, seconds - quiet)

    def _step(self, num_rows: int, beside: float) -> None:
        """The last chunk took `beside` seconds, and might have taken the budget. A short one tells little."""
        if self._rows is None or (num_rows < _LESS * self._rows and beside < self._budget):
            return
        self._rows = num_rows * max(_LESS, min(_MORE, self._budget / max(beside, 1e-9)))

    def _save(self, seconds: float) -> None:
        self._saved = max(-_SAVED, min(_SAVED, self._saved + seconds))


def _mean(before: float | None, now: float) -> float:
    return now if before is None else before + _WEIGHT * (now - before)

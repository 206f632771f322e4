"""How many rows of prompts a pass may take while others decode, from what passes took.

    a round of decoding rows alone    quiet seconds, by the number of sequences
    a pass with n prompt rows beside  quiet + n * row seconds          n = quiet * share / (1 - share) / row

So a pass lasts 1 / (1 - share) quiet rounds, however long the prompt. What prompts did not use of their share is saved
up, to one second: while some is left a pass may last nearly two quiet rounds, so that short prompts are read at once.
Passes over prompts alone say what a row costs before anything is mixed; since a few rows beside others cost less than
that, mixed passes correct it.
"""

_WEIGHT = 0.25  # of the newest measurement
_FIRST = 32  # prompt rows beside decoding ones while nothing is known
_SAVED = 1.0  # seconds for prompts that may be saved up
_BURST = 0.85  # quiet rounds that a chunk may take while some are left
_GROWTH = 1.3  # times the most rows so far that the next pass may have
_REFRESH = 16  # every so many passes prompts wait, so that the quiet round is measured again


class Pace:
    """Seconds by what was in a pass. `share`: of the time, for prompts."""

    def __init__(self, share: float) -> None:
        self._ratio = share / (1 - share)
        self._quiet: dict[int, float] = {}  # bit length of the number of sequences -> seconds of a round
        self._row: float | None = None  # seconds of a prompt row
        self._saved = _SAVED
        self._owed = 0.0  # seconds of decoding before the next chunk, where chunks are read alone
        self._mixed = 0  # passes since the last quiet one
        self._reach = _FIRST  # prompt rows beside others, at most: few of them may cost nothing, and many a lot

    def rows(self, num_decoding: int, most: int) -> int:
        """Prompt rows for a pass beside so many decoding sequences; 0: let them decode alone once."""
        quiet = self._quiet.get(num_decoding.bit_length())
        if quiet is None or self._mixed >= _REFRESH:
            return 0
        if self._row is None:
            return min(_FIRST, most)
        seconds = min(max(self._ratio, _BURST) * quiet, self._ratio * quiet + self._saved)
        return max(1, min(most, self._reach, round(seconds / self._row)))

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
            self._reach = max(self._reach, round(_GROWTH * num_rows))
            alone = self._row or seconds / num_rows
            beside = max(seconds - self._quiet.get(kind, seconds), 0.02 * alone * num_rows)
            self._row = _mean(self._row, beside / num_rows)
            self._save(self._ratio * (seconds - beside) - beside)

    def _save(self, seconds: float) -> None:
        self._saved = max(0.0, min(_SAVED, self._saved + seconds))


def _mean(before: float | None, now: float) -> float:
    return now if before is None else before + _WEIGHT * (now - before)

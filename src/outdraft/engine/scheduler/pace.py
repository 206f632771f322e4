"""How many rows of prompts a pass may take while others decode, from what passes took.

    a round of decoding rows alone      quiet seconds, by the number of sequences
    a pass with prompt rows beside      at most some 1.85 quiet rounds, whatever the prompt; more beside many
    on average                          prompts take their share of the time

    round   q   q  [q + chunk]  q   q  [q + chunk]  ...        a chunk takes time that was saved for it before

A chunk is as large as its pass may be long, and others come after it, because a chunk costs something however small it
is: behind a long context it reads all keys and values. What prompts do not use of their share is saved up, to one
second, so that short prompts are read at once. Where more texts are read than decoded, prompts have more of the time,
and chunks are larger: a few who decode gain little from it that many wait. A prompt that is soon read counts several
times, because it soon decodes too, and a round costs nearly the same for few texts as for many.

The number of rows is found by small steps: a chunk that took less than it might is followed by a larger one, and one
that took more by a smaller one.
"""

from math import sqrt

_WEIGHT = 0.25  # of the newest measurement
_FIRST = 16  # prompt rows beside decoding ones at first
THIN = 12  # rows: chunks below are read in slices, where they can be (`slices.py`)
_SAVED = 1.0  # seconds for prompts that may be saved up, or owed
_CHUNK = 0.85  # quiet rounds that a chunk may take
_STEP = 1.5  # from one chunk to the next at most, as large down as up: noise cancels out
_REFRESH = 16  # every so many passes prompts wait, so that the quiet round is measured again
_CROWD = 4.0  # prompts that count for each who decodes, at most
_SOON = 4.0  # weight of a prompt that is soon read; others have 1


class Pace:
    """Seconds by what was in a pass. `share`: of the time, for prompts."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._ratio = _ratio(share)  # seconds for prompts, for each second of others
        self._crowd = 1.0
        self._quiet: dict[int, float] = {}  # bit length of the number of sequences -> seconds of a round
        self._rows: float = _FIRST  # of prompts beside others, as they were last right
        self._saved = _SAVED
        self._owed = 0.0  # seconds of decoding before the next chunk, where chunks are read alone
        self._mixed = 0  # passes since the last quiet one
        self._is_after_slice = False

    def expect(self, num_decoding: int, num_reading: int, num_soon: int = 0) -> None:
        """So many texts are decoded now, and so many prompts read: where these are more, their share grows.

        `num_soon`: of the prompts, those that are soon read.
        """
        weight = num_reading + (_SOON - 1) * num_soon
        self._crowd = max(1.0, min(_CROWD, weight / num_decoding)) if num_decoding else 1.0
        self._ratio = max(_ratio(self._share), self._crowd - 1.0)

    def rows(self, num_decoding: int, most: int) -> int:
        """Prompt rows for a pass beside so many decoding sequences; 0: let them decode alone once."""
        is_quiet_due = self._mixed >= _REFRESH or self._is_after_slice or self._saved <= 0
        if self._quiet.get(num_decoding.bit_length()) is None or is_quiet_due:
            return 0
        return max(1, min(most, int(self._rows)))

    @property
    def is_thin(self) -> bool:
        """Whether chunks have become so small that most of what they take is not for their rows."""
        return self._rows < THIN

    def begin_anew(self) -> None:
        """Another prompt is read, whose chunks may be larger."""
        self._rows = _FIRST

    def slice_seconds(self, num_decoding: int) -> float | None:
        """What a slice of a chunk may take now; None: those who decode have their turn before it."""
        quiet = self._quiet.get(num_decoding.bit_length())
        return None if quiet is None or self._is_after_slice or self._saved <= 0 else self._budget(quiet)

    def saw_slice(self, seconds: float) -> None:
        """A slice took so many seconds, which others waited for."""
        self._is_after_slice = True
        self._save(-seconds)

    @property
    def prompts_are_due(self) -> bool:
        """Whether a chunk may be read now, alone: those who decode have had their share since the last one."""
        return self._owed <= 0

    def saw(self, num_decoding: int, num_rows: int, seconds: float) -> None:
        """A pass over so many decoding sequences and prompt rows took so long."""
        kind = num_decoding.bit_length()
        self._is_after_slice = False
        if not num_rows:
            before = self._quiet.get(kind, seconds)
            self._quiet[kind] = before + _WEIGHT * (seconds - before)
            self._save(self._ratio * seconds)
            self._owed -= seconds
            self._mixed = 0
        elif not num_decoding:
            self._owed = seconds / self._ratio
        else:
            self._mixed += 1
            quiet = self._quiet.get(kind, seconds)
            self._save(self._ratio * quiet - (seconds - quiet))
            self._step(num_rows, seconds - quiet, self._budget(quiet))

    def _budget(self, quiet: float) -> float:
        """Seconds of a chunk."""
        return _CHUNK * self._crowd * quiet

    def _step(self, num_rows: int, beside: float, budget: float) -> None:
        """The last chunk took `beside` seconds, and might have taken `budget`. A short one shows little."""
        if num_rows < self._rows / _STEP and beside < budget:
            return
        before = min(self._rows, num_rows + 1)  # with what was rounded off
        self._rows = max(1.0, before * max(1 / _STEP, min(_STEP, sqrt(budget / max(beside, 1e-9)))))

    def _save(self, seconds: float) -> None:
        self._saved = max(-_SAVED, min(_SAVED, self._saved + seconds))


def _ratio(share: float) -> float:
    return share / (1 - share)

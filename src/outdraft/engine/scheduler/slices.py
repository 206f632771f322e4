"""How large the chunks of a prompt are that is read in slices of layers, and how large the slices, from what they took.

a slice   as many layers as fit into the seconds that it may take, one at least
a chunk   so many rows that one layer of it nearly fills a slice: the more rows, the more rarely keys and values
          before them are read
"""

from dataclasses import dataclass, replace

from outdraft.core.room import Room
from outdraft.core.sequence import CHUNK, Sequence
from outdraft.engine.scheduler.pace import Pace

_FIRST = 64  # rows of a chunk at first
_FEWEST = 8
_FULL = 0.8  # of a slice's seconds that one layer should take
_STEP = 1.5  # from one chunk to the next at most
_WEIGHT = 0.25  # of the newest measurement


@dataclass(slots=True, eq=False)
class Slices:
    """`reader`: whose prompt is read so, if any is. `is_open`: a chunk of it is under way."""

    reader: Sequence | None = None
    is_open: bool = False
    were_last: bool = False  # since then no other request has read
    _rows: float = 0  # of a chunk; 0: none has begun
    _left: int = 0  # layers of the chunk
    _layer: float | None = None  # seconds of a layer of the chunk
    _budget: float = 0.0  # seconds of a slice; 0: no request waits for it

    def choose(self, reading: list[Sequence], num_decoding: int, room: Room, pace: Pace) -> int | None:
        """Layers of the coming slice; 0: others decode before it. None: no request reads in slices now.

        The first in order does, from when its chunks beside others have become small until its prompt is read.
        """
        if self.reader is not None and self.reader.prefilled:
            self.end()
        if not self.is_open:
            if not reading or not num_decoding or room.slices == 1:
                return None
            if self.reader is not reading[0]:
                if not pace.is_thin or reading[0].beside is not None:
                    return None
                self.reader = reading[0]
                pace.begin_anew()
        if not num_decoding:
            return self.rest()
        reader = self.reader
        if self.were_last and reader is not None and any(comes_between(seq, reader) for seq in reading):
            return 0  # others read before the next slice
        pace.expect(num_decoding, 1)
        seconds = pace.slice_seconds(num_decoding)
        return 0 if seconds is None else self.layers(seconds)

    def begin(self, seq: Sequence, num_layers: int) -> Sequence:
        """The reader, whose next chunk, if none is under way, has its size, and so many layers."""
        if not self.is_open:
            self._rows = self._rows or _FIRST
            seq.turn, self._left = replace(seq.turn, max_chunk=int(self._rows)), num_layers
        return seq

    def end(self) -> None:
        """Its prompt is read, or it is gone: the next one may be read otherwise."""
        self.reader, self.is_open = None, False

    def layers(self, budget: float) -> int:
        """Of a slice that may take so many seconds."""
        self._budget = budget
        most = 1 if self._layer is None else max(1, int(budget / max(self._layer, 1e-9)))
        return min(most, self._left) if self.is_open else most

    def rest(self) -> int:
        """All layers that are left: no request waits for them."""
        self._budget = 0.0
        return self._left

    def ran(self, num_layers: int, num_rows: int, seconds: float, *, is_over: bool) -> None:
        """A slice of a chunk of so many rows took so long, and with it the chunk `is_over`, or not."""
        now = seconds / num_layers
        self._layer = now if self._layer is None else self._layer + _WEIGHT * (now - self._layer)
        self._left -= num_layers
        self.is_open, self.were_last = not is_over, True
        if not is_over:
            return
        if self._budget and num_rows >= int(self._rows):  # the end of a prompt is shorter, and shows less
            step = _FULL * self._budget / max(self._layer, 1e-9)
            self._rows = max(_FEWEST, min(CHUNK, self._rows * max(1 / _STEP, min(_STEP, step))))
        self._layer = None  # the next one has other rows


def overtakes(seq: Sequence, first: Sequence) -> bool:
    """Whether it may read before one that stands before it in order."""
    return seq.request.priority <= first.request.priority and seq.num_to_read < first.num_to_read


def comes_between(seq: Sequence, reader: Sequence) -> bool:
    """Whether it is read between two slices of another prompt: not where it would read long behind a long context."""
    is_long = seq.num_to_read > CHUNK and seq.num_cached > 4 * CHUNK
    return seq is not reader and overtakes(seq, reader) and not is_long

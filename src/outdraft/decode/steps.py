"""What runs an engine's passes: whole ones, with or without isolation, and the chunk that is read in slices."""

from collections.abc import Sequence as Seq

from outdraft.core.events import StepEvent
from outdraft.core.sequence import Sequence
from outdraft.decode.apart import fail, step_apart
from outdraft.decode.sliced import SlicedStep
from outdraft.decode.step import Parts, step
from outdraft.options.errors import CacheFullError
from outdraft.options.foreign import anything_but_an_interrupt


class Steps:
    """At most one chunk is under way at a time."""

    def __init__(self) -> None:
        self._under_way: SlicedStep | None = None

    def run(self, seqs: Seq[Sequence], num_layers: int, parts: Parts, *, isolates: bool) -> list[StepEvent]:
        """A whole pass over the sequences, one event each; or so many layers of the chunk of the only one.

        A chunk begins where none is under way, and has no event before it is over. `isolates`: what raises ends the
        request that it belongs to (`decode/apart.py`); a chunk that finds no room is read whole, which asks again.
        """
        if not num_layers:
            return step_apart(seqs, parts) if isolates else step(seqs, parts)
        (seq,), sliced, self._under_way = seqs, self._under_way, None
        try:
            sliced = sliced or SlicedStep(seq, parts)
            made = sliced.run(num_layers, fail if isolates else None)
        except anything_but_an_interrupt() as error:
            if not isolates:
                raise
            return step_apart(seqs, parts) if isinstance(error, CacheFullError) else [fail(seq, error)]
        self._under_way = None if made else sliced
        return made

    def forget(self, seq: Sequence) -> None:
        """Its chunk, should it be under way, is dropped."""
        if self._under_way is not None and self._under_way.seq is seq:
            self._under_way = None

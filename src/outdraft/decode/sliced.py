"""A prompt's chunk whose pass stops between layers, so that texts decoding meanwhile wait for a slice of it only.

    layers 0-2 of the chunk | a round of others | layers 3-5 | a round | ... | the last layers: the chunk is read

Behind a long context every chunk reads all keys and values, however few its rows, which may take longer than a round.
A slice reads those of its layers only, so that chunks may be large, and the pauses of others short. Nothing of the
chunk is kept before its pass is over: until then it can be dropped without a trace.
"""

from time import perf_counter
from typing import cast

import torch

from outdraft.core.decisions import Decisions
from outdraft.core.events import StepEvent, StepTimes
from outdraft.core.packing import pack
from outdraft.core.sequence import Sequence
from outdraft.core.target import SlicingTarget
from outdraft.decode.commit import Fail
from outdraft.decode.parts import Parts
from outdraft.decode.step import Apart, judge_scored, keep, step, taps_for
from outdraft.options.errors import CacheFullError
from outdraft.options.foreign import anything_but_an_interrupt


class SlicedStep:
    """`decode.step.step` for one sequence that reads its prompt, in slices."""

    @torch.inference_mode()
    def __init__(self, seq: Sequence, decisions: Decisions, parts: Parts) -> None:
        began = perf_counter()
        self.seq = seq
        self._decisions, self._parts = decisions, parts
        self._packed = pack([seq], [one.draft for one in decisions.each])
        self._pass = cast(SlicingTarget, parts.target).start(self._packed, taps_for(self._packed, parts))
        self._seconds = perf_counter() - began

    @torch.inference_mode()
    def run(self, num_layers: int, fail: Fail | None = None) -> list[StepEvent]:
        """So many layers more; the event of the chunk once it is over. `fail`: see `decode.commit.commit`."""
        began = perf_counter()
        scored = self._pass.run(num_layers)
        until = perf_counter()
        self._seconds += until - began
        if scored is None:
            return []
        times = StepTimes(target=self._seconds)
        judged = judge_scored(self._packed, self._decisions, scored, self._parts, times, until)
        return keep(judged, self._parts, fail)


class Slicing:
    """The chunk of an engine that is under way, if there is one."""

    under_way: SlicedStep | None = None

    def run(
        self, seq: Sequence, num_layers: int, parts: Parts, apart: Apart | None, decisions: Decisions
    ) -> list[StepEvent]:
        """So many layers of the chunk, which begins where none is under way; it has no event before it is over.

        `apart`: what raises ends the request. A chunk that finds no room is then read whole, which asks again.
        """
        sliced, self.under_way = self.under_way, None
        try:
            sliced = sliced or SlicedStep(seq, decisions, parts)
            made = sliced.run(num_layers, None if apart is None else apart.fail)
        except anything_but_an_interrupt() as error:
            if apart is None:
                raise
            is_full = isinstance(error, CacheFullError)
            return step([seq], parts, apart, decisions) if is_full else [apart.fail(seq, error)]
        self.under_way = None if made else sliced
        return made

    def forget(self, seq: Sequence) -> None:
        """Its chunk, should it be under way, is dropped."""
        if self.under_way is not None and self.under_way.seq is seq:
            self.under_way = None

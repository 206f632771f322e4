"""Statistics of a text that is being streamed, counted from its chunks: one chunk is one target pass.

What a chunk does not report (how many nodes were offered beyond the first rejection) is not shown.
"""

from time import perf_counter
from typing import TYPE_CHECKING

from rich.console import Console

from outdraft.core.events import Source, StepEvent
from outdraft.engine.stats import RequestStats

if TYPE_CHECKING:
    from outdraft.engine.callers.result import Chunk


class Tally:
    """Feeds a `RequestStats`, and looks at the clock."""

    def __init__(self) -> None:
        self.stats = RequestStats()
        self._began = self._last = perf_counter()
        self._first: float | None = None

    def add(self, chunk: "Chunk") -> None:
        accepted = sum(source == Source.ACCEPTED for source in chunk.sources)
        rejected = Source.RECOVERED in chunk.sources
        event = StepEvent(
            seq_id=0,
            tokens=chunk.token_ids,
            num_draft_tokens=accepted + rejected,
            num_accepted=accepted,
            rejected=rejected,
        )
        self.stats.add(event)
        self._last = perf_counter()
        self._first = self._last if self._first is None else self._first

    def show(self, console: Console) -> None:
        stats, seconds = self.stats, self._last - self._began
        speed = f", {stats.num_tokens / seconds:.0f} tokens/s" if seconds > 0 else ""
        first = f", the first after {self._first - self._began:.2f} s" if self._first is not None else ""
        console.print(f"{stats.num_tokens} tokens in {seconds:.2f} s{speed}{first}")
        line = f"{stats.num_steps} target passes, {stats.tau:.2f} tokens a pass"
        if stats.acceptance_by_position:
            rates = " ".join(f"{rate:.2f}" for rate in stats.acceptance_by_position)
            line += f"; accepted by position: {rates}"
        console.print(line)

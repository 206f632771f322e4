"""Who writes on the clock: an engine of ours, or another program (`bench.peers`). A round treats all of them alike.

`promises`: whether plain decoding's own text is owed, so that another one is a failed row. `foreign`: another program,
which owes us nothing; how far its text agrees is a fact and shown as one.
"""

from collections.abc import Sequence as Seq
from typing import Any, Protocol

from outdraft.bench.clock import Timed, time_text
from outdraft.bench.energy import Rapl
from outdraft.bench.identity import is_promised
from outdraft.bench.memory import forget_peak, read_peak
from outdraft.bench.subject import with_weights
from outdraft.core.params import SamplingParams
from outdraft.engine.llm import LLM


class Entrant(Protocol):
    """One contestant. `config`: plain data, what it is set to; it goes into every record."""

    config: dict[str, Any]
    foreign: bool

    def promises(self, params: SamplingParams) -> bool:
        """Whether it owes us plain decoding's text."""

    def time_text(
        self, ids: Seq[int], params: SamplingParams, meter: Rapl | None = None, *, references: Seq[Seq[int]] = ()
    ) -> Timed:
        """Write one text. `references`: ids of texts that it may copy from."""

    def forget_peak(self) -> None:
        """Begin to watch its memory anew."""

    def read_peak(self) -> dict[str, int]:
        """Bytes since then, as `bench.memory` gives them."""


class Ours:
    """An engine in this process."""

    foreign = False

    def __init__(self, llm: LLM) -> None:
        self.llm = llm
        self.config = {**llm.config, "drafter": with_weights(llm.config["drafter"])}
        self._device = str(llm.config["device"])

    def promises(self, params: SamplingParams) -> bool:
        """Greedy text, and seeded text under a rule that couples to the seed."""
        return is_promised(self.llm, params)

    def time_text(
        self, ids: Seq[int], params: SamplingParams, meter: Rapl | None = None, *, references: Seq[Seq[int]] = ()
    ) -> Timed:
        """Through the engine's own stream. No text profits from having been written before."""
        self.llm.forget()
        return time_text(self.llm, ids, params, meter, references=references)

    def forget_peak(self) -> None:
        forget_peak(self._device)

    def read_peak(self) -> dict[str, int]:
        return read_peak(self._device)

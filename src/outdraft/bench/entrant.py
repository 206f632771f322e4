"""An entrant of a timed round: an engine of ours, or another program. All are timed in the same way.

`promises`: whether plain decoding's own text is owed, so that another one is a failed row. `foreign`: another program,
which owes us nothing; how far its text agrees is a fact and shown as one.
"""

from collections.abc import Sequence as Seq
from contextlib import nullcontext
from typing import Any, Protocol

from outdraft.bench.clock import Timed, time_text
from outdraft.bench.identity import is_promised
from outdraft.bench.memory import forget_peak, read_peak
from outdraft.bench.subject import fingerprints
from outdraft.bench.threads import fixed_threads
from outdraft.engine.llm import LLM
from outdraft.options.errors import ConfigError
from outdraft.options.params import SamplingParams

_CHOOSE = (  # settings that another program may not know, or spells otherwise
    *("temperature", "min_tokens", "stop", "stop_token_ids", "logit_bias", "repetition_penalty", "presence_penalty"),
    *("frequency_penalty", "banned_token_ids", "bad_words", "allowed_token_ids", "forced_prefix", "guidance_scale"),
)


class Entrant(Protocol):
    """One contestant. `config`: plain data, what it is set to; it goes into every record."""

    config: dict[str, Any]
    foreign: bool

    def promises(self, params: SamplingParams) -> bool:
        """Whether it owes us plain decoding's text."""

    def time_text(self, ids: Seq[int], params: SamplingParams, *, references: Seq[Seq[int]] = ()) -> Timed:
        """Write one text. `references`: ids of texts that it may copy from."""

    def forget_peak(self) -> None:
        """Begin to watch its memory anew."""

    def read_peak(self) -> dict[str, int]:
        """Bytes since then, as `bench.memory` gives them."""


class Ours:
    """An engine in this process. `threads`: always so many; None: as many as it finds to be quickest."""

    foreign = False

    def __init__(self, llm: LLM, threads: int | None = None) -> None:
        self.llm, self.threads = llm, threads
        named = fingerprints([llm.config["drafter"], llm.config["policy"]])
        self.config = {**llm.config, "files": named}
        self.config |= {} if threads is None else {"threads": threads}
        self._device = str(llm.config["device"])

    def promises(self, params: SamplingParams) -> bool:
        """Greedy text, and seeded text under a rule that couples to the seed."""
        return is_promised(self.llm, params)

    def time_text(self, ids: Seq[int], params: SamplingParams, *, references: Seq[Seq[int]] = ()) -> Timed:
        """Through the engine's own stream. No text profits from having been written before."""
        self.llm.forget()
        with nullcontext() if self.threads is None else fixed_threads(self.threads):
            return time_text(self.llm, ids, params, references=references)

    def forget_peak(self) -> None:
        forget_peak(self._device)

    def read_peak(self) -> dict[str, int]:
        return read_peak(self._device)


def check_greedy(params: SamplingParams) -> None:
    """Other programs are compared on greedy texts of one length; raises `ConfigError` naming what says otherwise."""
    plain = SamplingParams()
    for name in _CHOOSE:
        if getattr(params, name) != getattr(plain, name):
            raise ConfigError(f"--peer compares greedy texts of one length: leave {name}={getattr(params, name)} out")

"""`BatchSpeculativeDecoding`: sequences join at any time and leave when they end; none waits or is padded.

Every row accepts its own length, has its own coins and its own end, so its text is the one it has alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from outdraft.engine.callers.result import Chunk
from outdraft.engine.llm import LLM
from outdraft.engine.stats import RequestStats
from outdraft.options.params import SamplingParams
from tutorial.models import AnyPrompt, Model, Saves, as_prompt, directory_of


@dataclass(slots=True, kw_only=True)
class Completed:
    """One sequence's text so far; `stats` when it has ended."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    stats: RequestStats | None = None


class BatchSpeculativeDecoding:
    """`batch_size`: how many decode at once, others wait. `engine`: any other argument of `LLM`."""

    def __init__(
        self,
        target_model: Model,
        draft_model: Model,
        max_speculative_tokens: int = 5,
        *,
        batch_size: int = 64,
        tokenizer: Saves | None = None,
        **engine: Any,
    ) -> None:
        self.llm = LLM(
            directory_of(target_model, tokenizer),
            draft_model=directory_of(draft_model),
            num_speculative_tokens=max_speculative_tokens,
            **{"max_num_seqs": batch_size, **engine},
        )
        self.completed: dict[int, Completed] = {}
        self._running: dict[int, tuple[Iterator[Chunk], Completed]] = {}
        self._count = 0

    def add_sequence(self, prompt: AnyPrompt, max_new_tokens: int = 100, **sampling: Any) -> int:
        """Queue a prompt, at any time; returns the number by which it is found in `completed`."""
        number, self._count = self._count, self._count + 1
        stream = self.llm.stream(as_prompt(prompt), SamplingParams(max_tokens=max_new_tokens, **sampling))
        self._running[number] = (stream, Completed())
        return number

    def step(self) -> list[int]:
        """At least one more token for every running sequence; returns those that ended."""
        ended = []
        for number, (stream, text) in list(self._running.items()):
            try:
                chunk = next(stream)
            except BaseException:
                del self._running[number]  # a bad prompt leaves the others alone
                raise
            text.text += chunk.text
            text.token_ids += chunk.token_ids
            text.finish_reason, text.stats = chunk.finish_reason, chunk.stats
            if chunk.finish_reason is not None:
                stream.close()  # type: ignore[attr-defined]
                del self._running[number]
                self.completed[number] = text
                ended.append(number)
        return ended

    def run(self) -> dict[int, Completed]:
        while self._running:
            self.step()
        return self.completed

    def get_completed_sequences(self) -> dict[int, Completed]:
        """Those that have ended since the last call, by number; they are then no longer in `completed`."""
        completed, self.completed = self.completed, {}
        return completed

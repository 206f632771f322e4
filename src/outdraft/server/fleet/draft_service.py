"""A draft model that writes ahead of a target elsewhere: one open stream for each text that is being decoded.

    target    asks behind "It was": 3 tokens      passes ...             asks behind "It was late when": 3 tokens
    stream    late when the                       old man came ...       reads on: old man came           nothing waits
              late at night ...                   ...                    closed (that cancels it), a new one is opened

The stream goes on by itself while the target's pass lasts: that is the run-ahead. What the target has kept is compared
with what stands in the stream; where it goes another way, the stream is closed. Run-ahead of a drafter on its own
device: Liu et al., "PEARL", 2024, https://arxiv.org/abs/2408.11850.

A seeded text is drafted with its own seed: coins are keyed by seed and absolute position, so the draft model's draws
share the target's noise, as those of a drafter in the same process do. Data in: texts; data out: tokens.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Any

from outdraft.engine.callers.result import Chunk
from outdraft.engine.llm import LLM
from outdraft.options.params import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftAsk:
    """So many tokens are wanted behind a text, of which `tokens` are those from `start` on."""

    text_id: str
    start: int
    tokens: tuple[int, ...]
    depth: int
    sampling: Mapping[str, Any] = field(default_factory=dict)  # of a seeded text; empty: greedy


@dataclass(slots=True)
class _Open:
    """A text, and the stream that writes on behind it."""

    tokens: list[int]  # the text, and what the stream has given so far
    length: int  # of the text
    stream: Iterator[Chunk]


class DraftService:
    """`llm`: the draft model. `ahead`: how many times the asked depth it drafts on by itself."""

    def __init__(self, llm: LLM, *, ahead: int = 3) -> None:
        self._llm, self._ahead = llm, ahead
        self._open: dict[str, _Open] = {}
        self.num_opened = 0  # streams; all but the first of a text are what a wrong guess, or the end of one, has cost

    @property
    def vocab_size(self) -> int:
        """Of the draft model: it must be the target's."""
        return self._llm.engine.parts.target.vocab_size

    def draft(self, asks: Seq[DraftAsk]) -> list[list[int]]:
        """For each text the next tokens, all at once; fewer where the draft model's context ends."""
        running = [self._follow(ask) for ask in asks]
        for one, ask in zip(running, asks, strict=True):
            _read(one, one.length + ask.depth)
        return [one.tokens[one.length :][: ask.depth] for one, ask in zip(running, asks, strict=True)]

    def end(self, text_ids: Seq[str]) -> None:
        for text_id in text_ids:
            if (one := self._open.pop(text_id, None)) is not None:
                _close(one)

    def _follow(self, ask: DraftAsk) -> _Open:
        """The stream behind the text of today: the one that is open, if the text went where it goes."""
        one = self._open.get(ask.text_id)
        text = [*(one.tokens[: ask.start] if one is not None else ()), *ask.tokens]
        if one is not None:
            _read(one, len(text))
            if one.tokens[: len(text)] == text:
                _read(one, len(text) + ask.depth)
            if one.tokens[: len(text)] == text and len(one.tokens) >= len(text) + ask.depth:
                one.length = len(text)
                return one
            _close(one)
        params = SamplingParams(max_tokens=ask.depth * (1 + self._ahead), ignore_eos=True, **ask.sampling)
        stream = self._llm.stream({"prompt_token_ids": text}, params)
        self.num_opened += 1
        self._open[ask.text_id] = made = _Open(text, len(text), stream)
        return made


def _read(one: _Open, wanted: int) -> None:
    """Read on until there are so many tokens, or no more come."""
    while len(one.tokens) < wanted:
        chunk = next(one.stream, None)
        if chunk is None:
            return
        one.tokens += chunk.token_ids


def _close(one: _Open) -> None:
    close = getattr(one.stream, "close", None)
    if close is not None:
        close()

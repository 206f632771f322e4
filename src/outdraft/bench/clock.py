"""One text on the clock: seconds, and seconds to the first token.

The text is streamed, so that the first token has a time of its own; the loop and its counters serve all methods.
Data in: an engine, a prompt's ids, sampling settings; data out: `Timed`.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from time import perf_counter

from outdraft.engine.llm import LLM
from outdraft.engine.stats import RequestStats
from outdraft.options.params import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """What was written, and what it took."""

    token_ids: tuple[int, ...]
    text: str
    stats: RequestStats
    seconds: float
    first_token_seconds: float
    num_first_tokens: int = 1  # how many came with the first piece


def time_text(llm: LLM, ids: Seq[int], params: SamplingParams, *, references: Seq[Seq[int]] = ()) -> Timed:
    """Write one text. On a GPU too the last chunk is there only when its tokens are on the host."""
    tokens: list[int] = []
    text, first, num_first, stats = "", None, 0, RequestStats()
    began = perf_counter()
    for chunk in llm.stream({"prompt_token_ids": ids, "references": references}, params):
        if first is None:
            first, num_first = perf_counter() - began, len(chunk.token_ids)
        tokens += chunk.token_ids
        text += chunk.text
        stats = chunk.stats or stats
    seconds = perf_counter() - began
    return Timed(
        token_ids=tuple(tokens),
        text=text,
        stats=stats,
        seconds=seconds,
        first_token_seconds=first if first is not None else seconds,
        num_first_tokens=num_first,
    )

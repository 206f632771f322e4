"""Does a text repeat itself in a loop? Greedy text of a small model often does, which favours every drafter.

A text loops if it ends in one piece of at most 32 tokens, said three times or more, over at least its last 24 tokens.
Data in: openings of held-out texts; data out: of each source the share of greedy texts that loop.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq

from outdraft.engine.callers.result import all_whole
from outdraft.engine.llm import LLM
from outdraft.options.params import SamplingParams

LONGEST, LEAST, TIMES = 32, 24, 3


def loops(token_ids: Seq[int]) -> bool:
    """Whether a text of token ids ends in a loop."""
    for period in range(1, LONGEST + 1):
        size = max(LEAST, TIMES * period)
        tail = token_ids[-size:]
        if len(tail) == size and all(a == b for a, b in zip(tail, tail[period:], strict=False)):
            return True
    return False


def share_that_loops(llm: LLM, openings: Mapping[str, Seq[Seq[int]]], max_tokens: int) -> dict[str, float]:
    """Source -> the share of its greedy texts of `max_tokens` tokens that loop; "all" -> the mean over all texts."""
    found: dict[str, float] = {}
    every: list[bool] = []
    for source, prompts in openings.items():
        asked = [{"prompt_token_ids": list(ids)} for ids in prompts]
        texts = all_whole(llm.generate(asked, SamplingParams(max_tokens=max_tokens)))
        looping = [loops(one.token_ids) for one in texts]
        found[source] = sum(looping) / len(looping)
        every += looping
    return {**found, "all": sum(every) / len(every)}

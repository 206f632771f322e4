"""Whether a method wrote the text that plain decoding writes, in the very run that is timed.

It must, for greedy decoding, and for a seed under a rule that couples to it. Without that promise nothing is compared
(None): equality in distribution is what `outdraft audit` proves, and a lossy rule promises nothing.
"""

from collections.abc import Sequence as Seq

from outdraft.core.request import Request
from outdraft.engine.llm import LLM
from outdraft.options.params import SamplingParams


def is_promised(llm: LLM, params: SamplingParams) -> bool:
    """Whether this engine owes us plain decoding's own text."""
    return llm.lossless and (
        params.greedy or llm.engine.parts.verifier.couples(Request(prompt_token_ids=(0,), params=params))
    )


def count_agreeing(mine: Seq[int], plain: Seq[int]) -> int:
    """Tokens before the first difference; all of plain decoding's where there is none."""
    pairs = zip(mine, plain, strict=False)
    return next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(mine), len(plain)))


def find_difference(mine: Seq[int], plain: Seq[int]) -> str | None:
    """Where the texts part, in words; None if they do not."""
    for place, (one, other) in enumerate(zip(mine, plain, strict=False)):
        if one != other:
            return f"token {place} is {one}, plain decoding's is {other}"
    if len(mine) != len(plain):
        return f"it has {len(mine)} tokens, plain decoding's text has {len(plain)}"
    return None

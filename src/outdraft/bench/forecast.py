"""About how long a measurement will take, from the pace of one plain text. Data out: seconds, and words for them."""

from time import perf_counter

from outdraft.core.params import SamplingParams
from outdraft.engine.llm import LLM

TRIAL = 16  # tokens


def text_seconds(plain: LLM, max_tokens: int) -> float:
    """Seconds that plain decoding needs for a text of so many tokens: measured on a short one, after a warm-up."""
    prompt, params = {"prompt_token_ids": [0]}, SamplingParams(max_tokens=TRIAL, ignore_eos=True)
    plain.generate(prompt, params)
    began = perf_counter()
    plain.generate(prompt, params)
    return (perf_counter() - began) * max_tokens / TRIAL


def in_words(seconds: float) -> str:
    """'20 s', '3 min', '2 h': so exact as a forecast is."""
    if seconds < 90:
        return f"{max(1, round(seconds / 5) * 5) if seconds >= 10 else max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 90 * 60 else f"{round(seconds / 3600)} h"

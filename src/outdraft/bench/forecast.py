"""About how long a measurement will take, from the pace of one plain text on this machine as busy as it is now.

Data in: a plain engine, the length of a prompt and of a text; data out: seconds, by the clock and on a quiet machine,
and words for them.
"""

from dataclasses import dataclass
from statistics import median
from time import process_time

from outdraft.bench.clock import time_text
from outdraft.engine.llm import LLM
from outdraft.options.params import SamplingParams

TRIAL, REPEATS = 16, 3  # tokens of a trial text, and how many texts


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPace:
    """What one plain text takes. `seconds`: now, by the clock; `quiet`: at most, if no other program used the cores."""

    seconds: float
    quiet: float


def text_pace(plain: LLM, max_tokens: int, prompt_len: int = 1) -> TextPace:
    """The pace of plain texts of `max_tokens` tokens after `prompt_len` of prompt: the median of three short texts.

    The processor time of a text bounds what it takes on a quiet machine, where no thread waits for a core. On a GPU,
    whose time it does not hold, the clock is the only measure, so `quiet` equals `seconds` there.
    """
    room = int(plain.config["max_model_len"]) - TRIAL
    ids, params = [0] * max(1, min(prompt_len, room)), SamplingParams(max_tokens=TRIAL, ignore_eos=True)
    on_cpu = str(plain.config["device"]) == "cpu"
    paces: list[tuple[float, float]] = []
    for _ in range(REPEATS + 1):
        plain.forget()
        began = process_time()
        timed = time_text(plain, ids, params)
        worked = process_time() - began
        later = (timed.seconds - timed.first_token_seconds) / max(1, TRIAL - timed.num_first_tokens)
        seconds = timed.first_token_seconds + later * (max_tokens - 1)
        share = min(1.0, worked / timed.seconds) if on_cpu and timed.seconds else 1.0
        paces.append((seconds, seconds * share))
    seconds, quiet = (median(column) for column in zip(*paces[1:], strict=True))
    return TextPace(seconds=seconds, quiet=quiet)


def in_words(seconds: float) -> str:
    """'20 s', '3 min', '2 h': as exact as a forecast is."""
    if seconds < 90:
        return f"{max(1, round(seconds / 5) * 5) if seconds >= 10 else max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 90 * 60 else f"{round(seconds / 3600)} h"


def how_long(seconds: float, quiet: float) -> str:
    """'about 40 s', and where other programs slow this one down 'about 3 min now, about 40 s on a quiet machine'."""
    now = f"about {in_words(seconds)}"
    return f"{now} now, about {in_words(quiet)} on a quiet machine" if quiet < 0.7 * seconds else now

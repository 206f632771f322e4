"""Log probabilities of one token, written or of the prompt, under the raw and the warped target distribution."""

from dataclasses import dataclass
from typing import Literal

LogprobsMode = Literal["raw_logprobs", "processed_logprobs", "raw_logits", "processed_logits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprobs:
    """Natural logarithms. `raw`: softmax of the logits as the model gave them; `warped`: the distribution sampled
    from. `logprob` and `top` are what `logprobs_mode` asks for: with "raw_logprobs" they are `raw` and `top_raw`."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()  # (token, value), largest value first
    raw: float
    warped: float
    top_raw: tuple[tuple[int, float], ...] = ()  # (token, logprob), best first
    top_warped: tuple[tuple[int, float], ...] = ()

"""Log probabilities of one emitted token under the raw and the warped target distribution."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprobs:
    """Natural logarithms. `raw`: softmax of the logits as the model gave them; `warped`: the distribution sampled
    from."""

    token: int
    raw: float
    warped: float
    top_raw: tuple[tuple[int, float], ...] = ()  # (token, logprob), best first
    top_warped: tuple[tuple[int, float], ...] = ()

"""What a request asks of sampling: one frozen record, checked when it is made.

The names are those that vLLM and the OpenAI API use. `temperature=0` is greedy decoding, which is the one-hot law of
the processed logits. `seed` also selects the seed-coupled rule: the text is then the same whatever drafts it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from outdraft.core.errors import RequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Sampling settings of one request. Raises `RequestError` naming the parameter, its value and its range."""

    max_tokens: int = 128
    min_tokens: int = 0
    temperature: float = 0.0
    top_k: int = 0  # 0: off
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    repetition_penalty: float = 1.0  # > 1 discourages tokens of prompt and output
    presence_penalty: float = 0.0  # of output only
    frequency_penalty: float = 0.0  # of output only, times the count
    logprobs: int | None = None  # None: off; n: the chosen token's and the n best, of the raw and of the warped law

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):
            object.__setattr__(self, "stop", (self.stop,))
        for name in ("stop", "stop_token_ids"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        floats = ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
        for name in floats:
            if not math.isfinite(getattr(self, name)):
                raise RequestError(f"{name}={getattr(self, name)!r} is not a finite number")
        self._check("max_tokens", self.max_tokens >= 1, "at least 1")
        self._check("min_tokens", 0 <= self.min_tokens <= self.max_tokens, "between 0 and max_tokens")
        self._check("temperature", self.temperature >= 0, "at least 0 (0 is greedy)")
        self._check("top_k", self.top_k >= 0, "at least 0 (0 turns it off)")
        self._check("top_p", 0 < self.top_p <= 1, "above 0 and at most 1")
        self._check("min_p", 0 <= self.min_p <= 1, "between 0 and 1")
        self._check("repetition_penalty", self.repetition_penalty > 0, "above 0 (1 turns it off)")
        self._check("logprobs", self.logprobs is None or self.logprobs >= 0, "None or at least 0")
        self._check("stop", all(self.stop), "non-empty strings")
        self._check("logit_bias", all(not math.isnan(b) for b in self.logit_bias.values()), "numbers, not NaN")

    def _check(self, name: str, holds: bool, allowed: str) -> None:
        if not holds:
            raise RequestError(f"{name}={getattr(self, name)!r} is out of range: it must be {allowed}")

    @property
    def greedy(self) -> bool:
        """Whether the law is one-hot."""
        return self.temperature == 0.0

    @property
    def edits_logits(self) -> bool:
        """Whether logits are changed before the temperature: by penalties, a minimum length, or biases."""
        return self.depends_on_history or bool(self.logit_bias)

    @property
    def depends_on_history(self) -> bool:
        """Whether the processed law at a node depends on which tokens came before, beyond the model's own view."""
        return bool(
            self.repetition_penalty != 1.0 or self.presence_penalty or self.frequency_penalty or self.min_tokens
        )

"""`AdaptiveDraftModel` chooses among draft models, `AdaptiveSpeculativeDecoding` the draft length, from what was seen.

Plain decoding is one of the lengths. Both choose before a text begins and never change its law.
"""

import math
from collections.abc import Sequence as Seq
from pathlib import Path
from typing import Any

from outdraft.analysis.theory import best_length, estimate_alpha
from outdraft.core.errors import ConfigError
from outdraft.core.params import SamplingParams
from outdraft.engine.llm import LLM
from outdraft.engine.prompts import Prompt
from outdraft.engine.writer import Result
from outdraft.tutorial.complexity import SequenceComplexityEstimator


class Arms:
    """A discounted upper confidence bound on reward per cost: every arm is tried, old rounds are forgotten.

    Garivier and Moulines, "On upper-confidence bound policies for non-stationary bandit problems", 2008,
    https://arxiv.org/abs/0805.3415.
    """

    def __init__(self, count: int, *, forget: float = 0.98, width: float = 0.2) -> None:
        self.weight = [0.0] * count
        self.reward = [0.0] * count
        self.cost = [0.0] * count
        self._forget, self._width = forget, width

    def select(self) -> int:
        """An arm that was never tried, else the one with the highest bound."""
        if 0.0 in self.weight:
            return self.weight.index(0.0)
        rates = [reward / cost for reward, cost in zip(self.reward, self.cost, strict=True)]
        scale, total = max(rates), math.log(1 + sum(self.weight))
        bounds = [
            rate + self._width * scale * math.sqrt(total / weight)
            for rate, weight in zip(rates, self.weight, strict=True)
        ]
        return bounds.index(max(bounds))

    def update(self, arm: int, reward: float, cost: float) -> None:
        """What the arm brought, and what it took (above 0)."""
        for values in (self.weight, self.reward, self.cost):
            values[:] = [self._forget * value for value in values]
        self.weight[arm] += 1
        self.reward[arm] += reward
        self.cost[arm] += cost


class AdaptiveDraftModel:
    """Any number of draft models over one target; each text goes to the one with the most tokens a second so far."""

    def __init__(
        self,
        target_model: str | Path,
        draft_models: Seq[str | Path],
        max_speculative_tokens: int = 5,
        **engine: Any,
    ) -> None:
        if not draft_models:
            raise ConfigError("draft_models is empty: name at least one")
        plain = LLM(target_model, **engine)
        self.engines = [
            plain.with_speculation(draft_model=model, num_speculative_tokens=max_speculative_tokens)
            for model in draft_models
        ]
        self.arms = Arms(len(self.engines))
        self.chosen: list[int] = []  # of each text

    def generate(self, prompt: Prompt, max_new_tokens: int = 100, **sampling: Any) -> Result:
        """Continue `prompt` with the draft model that is chosen now."""
        arm = self.arms.select()
        result = self.engines[arm].generate(prompt, SamplingParams(max_tokens=max_new_tokens, **sampling))
        self.arms.update(arm, result.stats.num_tokens, sum(result.stats.times.values()))
        self.chosen.append(arm)
        return result


class AdaptiveSpeculativeDecoding:
    """The complexity of a prompt sets what is expected of it, weighing `prior` tokens; what happened decides.

    The length is the best one for the acceptance rate so far and the measured cost of drafting (`analysis.theory`).
    """

    def __init__(
        self,
        target_model: str | Path,
        draft_model: str | Path,
        max_speculative_tokens: int = 8,
        *,
        estimator: SequenceComplexityEstimator | None = None,
        prior: float = 16.0,
        forget: float = 0.9,
        **engine: Any,
    ) -> None:
        self.llm = LLM(target_model, draft_model=draft_model, num_speculative_tokens=max_speculative_tokens, **engine)
        self.estimator = estimator or SequenceComplexityEstimator()
        self.lengths: list[int] = []  # of each text
        self._longest, self._prior, self._forget = max_speculative_tokens, prior, forget
        self._accepted = self._rejected = 0.0
        self._draft_cost: float | None = None

    def choose_length(self, tokens: Seq[int]) -> int:
        """For a prompt of these ids; 0 is plain decoding. Before costs are known, half of the longest."""
        easy = 1 - self.estimator.score(tokens)
        alpha = estimate_alpha(self._accepted + self._prior * easy, self._rejected + self._prior * (1 - easy))
        if self._draft_cost is None:
            return max(1, self._longest // 2)
        return best_length(alpha, draft_cost=self._draft_cost, longest=self._longest)

    def generate(self, prompt: Prompt, max_new_tokens: int = 100, **sampling: Any) -> Result:
        """Continue `prompt` with the length that is chosen now."""
        tokens = self.llm.encode(prompt)
        length = self.choose_length(tokens)
        result = self.llm.generate(
            {"prompt_token_ids": tokens}, SamplingParams(max_tokens=max_new_tokens, **sampling),
            num_speculative_tokens=length,
        )  # fmt: skip
        self.lengths.append(length)
        self.update(result)
        return result

    def update(self, result: Result) -> None:
        """What a text showed: acceptance, and the time of a draft token in target passes."""
        stats = result.stats
        self._accepted = self._forget * self._accepted + stats.num_accepted_tokens
        self._rejected = self._forget * self._rejected + stats.num_rejections
        if stats.num_draft_tokens and stats.num_steps:
            cost = stats.draft_seconds / stats.num_draft_tokens / (stats.target_seconds / stats.num_steps)
            old = self._draft_cost
            self._draft_cost = cost if old is None else self._forget * old + (1 - self._forget) * cost

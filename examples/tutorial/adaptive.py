"""`AdaptiveDraftModel` chooses among draft models, `AdaptiveSpeculativeDecoding` the draft length, from what was seen.

The choices of every round are the engine's: its drafter `several`, its policies `bandit` and `estimator`. Plain
decoding is one of the choices of both. Nothing that is chosen changes the distribution of a text.
"""

import math
from collections import deque
from collections.abc import Sequence as Seq
from typing import Any

from outdraft.analysis.theory import best_length, estimate_alpha
from outdraft.control.bandit import BanditPolicy
from outdraft.core.logprobs import TokenLogprobs
from outdraft.engine.callers.result import Result
from outdraft.engine.llm import LLM
from outdraft.options.checked import check_value
from outdraft.options.errors import ConfigError
from outdraft.options.params import SamplingParams
from tutorial.complexity import SequenceComplexityEstimator
from tutorial.models import AnyPrompt, Model, Saves, as_prompt, directory_of

_RETRY = 8  # where plain decoding seems best, one text in so many drafts all the same; else that would stand for ever
_LIKELY = 20  # tokens of each distribution whose probabilities are asked for: enough to tell its entropy


class AdaptiveDraftModel:
    """Any number of draft models over one target, and plain decoding: a bandit plays what makes most tokens a second.

    Draft models are known by their numbers in `draft_models`, from 0.
    """

    def __init__(
        self,
        target_model: Model,
        draft_models: Seq[Model],
        max_speculative_tokens: int = 5,
        *,
        tokenizer: Saves | None = None,
        **engine: Any,
    ) -> None:
        self.llm = LLM(
            directory_of(target_model, tokenizer),
            **_several(draft_models, max_speculative_tokens),
            policy={"name": "bandit", "lengths": (0, max_speculative_tokens), "discount": 0.98},
            **engine,
        )
        self._drafts = list(draft_models)
        self._arms = [i for i, (_, length) in enumerate(self.bandit.arms) if length]  # the bandit's arm of each draft

    @property
    def bandit(self) -> BanditPolicy:
        """The engine's policy: plays, tokens and seconds of plain decoding, then of each draft model."""
        policy = self.llm.engine.parts.policy
        assert isinstance(policy, BanditPolicy)
        return policy

    def select_best_draft(self, tokens: Seq[int] = ()) -> int:
        """The number of the draft model with the most tokens a second so far; one that was never tried comes first.

        `tokens`, of the text, change nothing: speeds are measured, and not foretold from a text. Plain decoding may be
        faster still: `bandit.rates` has it too.
        """
        rates = [self.bandit.rates[arm] for arm in self._arms]
        return rates.index(max(rates))

    def get_current_draft(self) -> Model:
        """The draft model that `select_best_draft` names."""
        return self._drafts[self.select_best_draft()]

    def update_performance(self, i: int, accepted: int, total: int, time: float) -> None:
        """Enter a round that was measured elsewhere: draft model i guessed `total` tokens, of which `accepted` were
        accepted, so that the round emitted one more; it took `time` seconds.

        Raises `ConfigError` for a draft model that there is not, for impossible counts, and for a time that is none.
        """
        if not 0 <= i < len(self._arms):
            raise ConfigError(f"i={i}: must be between 0 and {len(self._arms) - 1}, an index into draft_models")
        if not 0 <= accepted <= total:
            raise ConfigError(f"accepted={accepted}, total={total}: need 0 <= accepted <= total")
        if not 0 < time < math.inf:
            raise ConfigError(f"time={time:g}: must be above 0 seconds and finite; take a finer clock, or more rounds")
        self.bandit.enter(self._arms[i], accepted + 1, time)

    def generate(self, prompt: AnyPrompt, max_new_tokens: int = 100, **sampling: Any) -> Result:
        """Continue `prompt`; each round the bandit chooses a draft model, or none."""
        return self.llm.generate(as_prompt(prompt), SamplingParams(max_tokens=max_new_tokens, **sampling))


class AdaptiveSpeculativeDecoding:
    """The complexity of a prompt sets what is expected of it, weighing `prior` tokens; what happened decides.

    The length that a text may have at most is the best one for the acceptance rate so far and the measured cost of
    drafting (`analysis.theory`); within it the policy `estimator` chooses length and draft model each round. Where the
    best length is 0, every eighth text drafts all the same, so that a change is noticed. The estimator of complexity is
    given the entropies of the target's last distributions and the last rounds' rejections.
    """

    def __init__(
        self,
        target_model: Model,
        draft_models: Model | list[Model] | tuple[Model, ...],
        max_speculative_tokens: int = 8,
        *,
        estimator: SequenceComplexityEstimator | None = None,
        prior: float = 16.0,
        forget: float = 0.9,
        tokenizer: Saves | None = None,
        **engine: Any,
    ) -> None:
        drafts = draft_models if isinstance(draft_models, list | tuple) else [draft_models]
        self.llm = LLM(
            directory_of(target_model, tokenizer),
            **_several(drafts, max_speculative_tokens),
            policy="estimator",
            **engine,
        )
        self.estimator = estimator or SequenceComplexityEstimator()
        self.lengths: list[int] = []  # of each text
        self.entropies: deque[float] = deque(maxlen=self.estimator.window)  # nats, of the last tokens written
        self.rejections: deque[float] = deque(maxlen=self.estimator.window)  # of the last rounds that drafted
        self._longest, self._prior, self._forget = max_speculative_tokens, prior, forget
        self._accepted = self._rejected = 0.0
        self._draft_cost: float | None = None  # in target passes: a mean, in which later texts weigh more
        self._weight = 0.0  # of the texts in that mean
        self._undrafted = 0  # texts without a draft token, since the last one with some

    def choose_length(self, tokens: Seq[int]) -> int:
        """For a prompt of these ids; 0 is plain decoding.

        Half of the longest before costs are known, and after seven texts without a draft.
        """
        seen = {"entropies": list(self.entropies), "rejections": list(self.rejections)}
        easy = 1 - self.estimator.estimate(tokens, **seen)
        alpha = estimate_alpha(self._accepted + self._prior * easy, self._rejected + self._prior * (1 - easy))
        trial = max(1, self._longest // 2)
        if self._draft_cost is None:
            return trial
        best = best_length(alpha, draft_cost=self._draft_cost, longest=self._longest)
        return trial if not best and self._undrafted >= _RETRY - 1 else best

    def generate(self, prompt: AnyPrompt, max_new_tokens: int = 100, **sampling: Any) -> Result:
        """Continue `prompt` with the length that is chosen now."""
        tokens = self.llm.encode(as_prompt(prompt))
        length = self.choose_length(tokens)
        result = self.llm.generate(
            {"prompt_token_ids": tokens},
            SamplingParams(max_tokens=max_new_tokens, **{"logprobs": _LIKELY, **sampling}),
            num_speculative_tokens=length,
        )
        self.lengths.append(length)
        self.update(result)
        return result

    def adaptive_generate(self, prompt: AnyPrompt, max_new_tokens: int = 100, **sampling: Any) -> Result:
        """`generate`, by the tutorial's name."""
        return self.generate(prompt, max_new_tokens, **sampling)

    def update(self, result: Result) -> None:
        """What a text showed: acceptance, entropies, and the time of a draft token in target passes."""
        stats = result.stats
        self._accepted = self._forget * self._accepted + stats.num_accepted_tokens
        self._rejected = self._forget * self._rejected + stats.num_rejections
        self.entropies.extend(_entropy(one) for one in result.logprobs or ())
        for _ in range(min(len(self.rejections), stats.num_steps - len(stats.per_step))):
            self.rejections.popleft()  # a round without a draft takes the place of an old one
        self.rejections.extend((kept < drafted) / (kept + (kept < drafted)) for drafted, kept in stats.per_step)
        self._undrafted = 0 if stats.num_draft_tokens else self._undrafted + 1
        if stats.num_draft_tokens and stats.num_steps:
            cost = stats.draft_seconds / stats.num_draft_tokens / (stats.target_seconds / stats.num_steps)
            before = cost if self._draft_cost is None else self._draft_cost
            self._weight = self._forget * self._weight + 1
            self._draft_cost = before + (cost - before) / self._weight


def _several(draft_models: Seq[Model], longest: int) -> dict[str, Any]:
    """Draft models side by side, and the deepest guess, in the engine's words."""
    if not draft_models:
        raise ConfigError("draft_models is empty: name at least one")
    if check_value("max_speculative_tokens", longest, int) < 1:
        raise ConfigError(f"max_speculative_tokens={longest}: must be at least 1; LLM without a draft decodes plainly")
    drafters = [{"method": "draft_model", "model": str(directory_of(model))} for model in draft_models]
    return {"drafter": {"name": "several", "drafters": drafters}, "num_speculative_tokens": longest}


def _entropy(told: TokenLogprobs) -> float:
    """Of the target's distribution, in nats: its likeliest tokens, and what is left of it as one more."""
    logs = [log for _, log in told.top_raw]
    left = 1 - sum(map(math.exp, logs))
    return -sum(math.exp(log) * log for log in logs if log > -math.inf) - (
        left * math.log(left) if left > 1e-9 else 0.0
    )

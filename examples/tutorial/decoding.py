"""`SpeculativeDecoding` and its relatives: a target, a draft model, and how many tokens are drafted a round.

A round drafts up to k tokens, scores them in one target pass, keeps what the rule accepts and emits one token more:
never none, so generation ends at an end token or a length and nowhere else. Both models keep their caches.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from outdraft.engine.callers.result import Result
from outdraft.engine.llm import LLM
from outdraft.engine.stats import RequestStats
from outdraft.options.params import SamplingParams
from tutorial.models import AnyPrompt, Model, Saves, as_prompt, directory_of
from tutorial.verification import ProbabilisticVerification


@dataclass(slots=True, kw_only=True)
class Statistics:
    """Counters over all texts. emitted = accepted + rounds, but for what an end inside an accepted run cuts off."""

    rounds: int = 0  # target passes that emitted tokens
    draft_tokens: int = 0
    accepted: int = 0
    rejected: int = 0  # rounds that ended in a rejection
    emitted: int = 0

    def add(self, stats: RequestStats) -> None:
        self.rounds += stats.num_steps
        self.draft_tokens += stats.num_draft_tokens
        self.accepted += stats.num_accepted_tokens
        self.rejected += stats.num_rejections
        self.emitted += stats.num_tokens

    @property
    def acceptance_rate(self) -> float:
        """Accepted / (accepted + rejected), which does not depend on the draft length."""
        examined = self.accepted + self.rejected
        return self.accepted / examined if examined else 0.0


class SpeculativeDecoding:
    """Target and draft: directories, names, or loaded models of transformers, whose `tokenizer` is then given too.

    `engine`: any argument of `LLM` (dtype, device, exact, ...).
    """

    def __init__(
        self,
        target_model: Model,
        draft_model: Model,
        max_speculative_tokens: int = 5,
        *,
        tokenizer: Saves | None = None,
        **engine: Any,
    ) -> None:
        self.llm = LLM(
            directory_of(target_model, tokenizer),
            draft_model=directory_of(draft_model),
            num_speculative_tokens=max_speculative_tokens,
            **engine,
        )
        self.stats = Statistics()

    def generate(
        self, prompt: AnyPrompt, max_new_tokens: int = 100, *, max_length: int | None = None, **sampling: Any
    ) -> Result:
        """Continue `prompt`: a text, ids as a list or tensor, or a prompt of `LLM.generate`.

        max_length: of prompt and answer together, in place of `max_new_tokens`. `sampling`: fields of `SamplingParams`.
        """
        ready = as_prompt(prompt)
        if max_length is not None:
            max_new_tokens = max_length - len(self.llm.encode(ready))
        result = self.llm.generate(ready, SamplingParams(max_tokens=max_new_tokens, **sampling))
        self.stats.add(result.stats)
        return result

    @property
    def acceptance_rate(self) -> float:
        """Accepted over judged draft tokens, over all texts so far."""
        return self.stats.acceptance_rate

    def get_acceptance_rate(self) -> float:
        return self.acceptance_rate


class AdvancedSpeculativeDecoding(SpeculativeDecoding):
    """With a rule of your choice, by its name or as an object; it samples by default, the extra token included."""

    def __init__(
        self,
        target_model: Model,
        draft_model: Model,
        max_speculative_tokens: int = 5,
        *,
        verification_method: str = "stochastic",
        verification: ProbabilisticVerification | None = None,
        **engine: Any,
    ) -> None:
        self.verification = verification or ProbabilisticVerification(verification_method)
        rule = {"name": self.verification.verifier, **self.verification.verifier_options}
        super().__init__(target_model, draft_model, max_speculative_tokens, verifier=rule, **engine)

    def generate(self, prompt: AnyPrompt, max_new_tokens: int = 100, **sampling: Any) -> Result:
        """As above, at temperature 1 by default."""
        return super().generate(prompt, max_new_tokens, **{"temperature": 1.0, **sampling})


class MemoryOptimizedSpeculativeDecoding(SpeculativeDecoding):
    """Keys and values of both models are reused in every class here; in this one they lie in pages, taken as needed.

    `kv_cache_optimization`: False lays each text's in one piece, of the length that it may come to have.
    """

    def __init__(
        self,
        target_model: Model,
        draft_model: Model,
        max_speculative_tokens: int = 5,
        *,
        kv_cache_optimization: bool = True,
        **engine: Any,
    ) -> None:
        layout = "paged" if kv_cache_optimization else "static"
        super().__init__(target_model, draft_model, max_speculative_tokens, kv_cache=layout, **engine)

    def reset_cache(self) -> None:
        """Forget earlier texts. Their keys and values went when they ended; what a drafter has learned goes now."""
        self.llm.forget()


class QuantizedSpeculativeDecoding(SpeculativeDecoding):
    """On fewer bits: the draft costs nothing but acceptance; the target's distribution changes, and results name its
    variant.

    draft_quantized: the draft model's weights as `bits` (4 or 8) say; target_quantized: its middle layers on 4 bits.
    """

    def __init__(
        self,
        target_model: Model,
        draft_model: Model,
        max_speculative_tokens: int = 5,
        *,
        draft_quantized: bool = True,
        target_quantized: bool = False,
        bits: int = 4,
        **engine: Any,
    ) -> None:
        rounding = f"int{bits}" if draft_quantized else "none"
        words: Mapping[str, Any] = {
            "drafter": {"name": "draft_model", "quantization": rounding},
            "precision": "mixed" if target_quantized else "full",
        }
        super().__init__(target_model, draft_model, max_speculative_tokens, **words, **engine)

    def measure(self, prompts: list[AnyPrompt], max_new_tokens: int = 64) -> dict[str, Any]:
        """What it comes to on this machine, greedy: nothing here is a constant."""
        began, before = perf_counter(), self.stats
        self.stats = Statistics()
        for prompt in prompts:
            self.generate(prompt, max_new_tokens)
        measured, self.stats = self.stats, before
        return {
            "target_variant": self.llm.config["variant"],
            "draft_variant": self.llm.config["drafter"]["variant"],
            "draft_bytes": self.llm.config["drafter"]["pass_bytes"],
            "acceptance_rate": measured.acceptance_rate,
            "tokens_per_pass": measured.emitted / max(1, measured.rounds),
            "tokens_per_second": measured.emitted / (perf_counter() - began),
        }

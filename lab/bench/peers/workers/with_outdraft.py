"""outdraft itself, in a process of its own as every other engine: `mode` is plain, default, or what drafts."""

import os
from typing import Any

from outdraft import LLM, SamplingParams, __version__
from outdraft.bench.clock import time_text


def versions(**given: Any) -> dict[str, str]:
    """Package -> version of what this worker runs."""
    return {"outdraft": __version__}


class Engine:
    """One engine. `k`: the most draft tokens a pass; 0 leaves them to the engine."""

    def __init__(self, *, model: str, mode: str, k: int, max_len: int, dtype: str = "auto", **_: Any) -> None:
        self.pids = [os.getpid()]
        options: dict[str, Any] = {"num_speculative_tokens": k} if k else {}
        drafter = {"plain": "none", "default": None, "assisted": "draft_model"}.get(mode, mode)
        self._llm = LLM(model, drafter=drafter, dtype=dtype, max_model_len=max_len, **options)

    def generate(self, *, prompt: list[int], max_tokens: int) -> dict[str, Any]:
        """Greedy, `max_tokens` long; nothing is left of an earlier text."""
        self._llm.forget()
        timed = time_text(self._llm, prompt, SamplingParams(max_tokens=max_tokens, ignore_eos=True))
        return {
            "tokens": list(timed.token_ids),
            "seconds": timed.seconds,
            "first_seconds": timed.first_token_seconds,
            "num_first": timed.num_first_tokens,
            "passes": timed.stats.num_steps,
            "drafted": timed.stats.num_draft_tokens,
            "accepted": timed.stats.num_accepted_tokens,
        }

    def close(self) -> None:
        """Its thread ends with its process, so there is nothing to close."""

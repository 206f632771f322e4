"""How many tokens a request took, and how they were drafted.

`metrics` has the shape that vLLM gives and that load tools read (`metrics.speculative_decoding`): its histogram has
K + 1 whole numbers, K being the most that a round may draft, so that a tool can tell a round that accepted all.
"""

from collections.abc import Iterable
from collections.abc import Sequence as Seq
from typing import Any

from outdraft.core.events import Source
from outdraft.engine.callers.result import Result


def usage(results: Iterable[Result], num_reasoning_tokens: int = 0, *, writes: bool = True) -> dict[str, Any]:
    """Of all texts of a request; a prompt counts once, however many texts it has. `writes`: their tokens are shown."""
    listed = list(results)
    texts = [text for one in listed for text in one.outputs]
    accepted = sum(one.sources.count(Source.ACCEPTED) for one in texts)  # a stop may have cut what the rule accepted
    return count_usage(
        sum(len(one.prompt_token_ids) for one in listed),
        sum(len(one.token_ids) for one in texts) if writes else 0,
        sum(one.num_cached_tokens for one in listed),
        accepted if writes else 0,
        sum(one.stats.num_draft_tokens for one in texts) - accepted,
        num_reasoning_tokens,
    )


def count_usage(
    prompt: int, written: int, cached: int, accepted: int, rejected: int, num_reasoning_tokens: int = 0
) -> dict[str, Any]:
    """The numbers under OpenAI's names."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "total_tokens": prompt + written,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": rejected,
            "reasoning_tokens": num_reasoning_tokens,
        },
    }


def metrics(texts: Seq[Result], num_spec_tokens: int) -> dict[str, Any] | None:
    """Statistics of a request for one text; None for several, as tools expect.

    `num_spec_tokens`: the most that a round may draft.
    """
    if len(texts) != 1:
        return None
    stats = texts[0].stats
    told: dict[str, Any] = stats.as_metrics()["speculative_decoding"]
    longest = max(num_spec_tokens, len(told["acceptance_histogram"]) - 1)
    counts = [stats.accepted_lengths[i] for i in range(longest + 1)]
    return {"speculative_decoding": {**told, "num_spec_tokens": longest, "acceptance_histogram": counts}}

"""What drafting beside the target's pass should bring: two stages that run at the same time cost the longer one.

Costs are in units of one plain target pass. Liu et al., "PEARL", 2024, https://arxiv.org/abs/2408.11850; Kumar et al.,
"Speculative speculative decoding", 2026, https://arxiv.org/abs/2603.03251. Data in: costs; data out: speed-ups.
"""


def serial_speedup(tokens: float, *, draft: float, verify: float) -> float:
    """Tokens of a round over the sum of its two stages."""
    return tokens / (draft + verify)


def overlapped_speedup(tokens: float, *, draft: float, verify: float) -> float:
    """Tokens of a round over the longer of its two stages."""
    return tokens / max(draft, verify)


def asynchronous_speedup(
    hit_rate: float, *, hit_tokens: float, miss_tokens: float, ahead: float, backup: float
) -> float:
    """Guesses prepared for several outcomes: tokens of a round that begins with a hit or a miss, over its time.

    ahead: what preparing takes in each round, beside its pass. backup: what drafting takes after a miss, before it.
    """
    tokens = hit_rate * hit_tokens + (1 - hit_rate) * miss_tokens
    return tokens / (max(1.0, ahead) + (1 - hit_rate) * backup)

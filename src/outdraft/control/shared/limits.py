"""What a request allows: its own wish limits every policy, and nothing is drafted that can no longer be emitted.

Data in: a sequence and a depth; data out: a depth.
"""

from outdraft.core.errors import ConfigError
from outdraft.core.sequence import Sequence


def allowed(seq: Sequence, depth: int) -> int:
    """At most `depth`: a round emits up to depth + 1 tokens, and 0 in the request is plain decoding."""
    wanted = seq.request.num_speculative_tokens
    if wanted is not None and wanted < depth:
        depth = wanted
    return max(0, min(depth, seq.room - 1))


def check_range(name: str, value: float, least: float, most: float = float("inf")) -> None:
    """Raise `ConfigError` unless least <= value <= most."""
    if not least <= value <= most:
        limit = f"at least {least:g}" if most == float("inf") else f"between {least:g} and {most:g}"
        raise ConfigError(f"{name}={value}: must be {limit}")

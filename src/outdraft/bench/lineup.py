"""The drafters of the demo, set up as suits the zoo's target; other commands take the zoo's weights from here too."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ZOO_TARGET = "zoo:target"
ZOO_OPTIONS: Mapping[str, dict[str, Any]] = {"early_exit": {"model": "zoo:early_exit"}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """One drafter and how much it guesses."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    num_speculative_tokens: int | None = None


RIVALS = (
    Rival(name="draft_model", num_speculative_tokens=4),
    Rival(name="ngram", num_speculative_tokens=8),
    Rival(name="lookahead", num_speculative_tokens=4),
    Rival(name="early_exit", options=ZOO_OPTIONS["early_exit"], num_speculative_tokens=3),
    Rival(name="eagle", num_speculative_tokens=5),
)

"""Draft on in small pieces for as long as the target's pass takes; drop all of it as soon as one token is wrong.

Butler et al., "PipeInfer: accelerating LLM inference using asynchronous pipelined speculation", 2024,
https://arxiv.org/abs/2407.11798, where several guesses are under way through a pipeline of machines and are cancelled
early. Here one target pass runs at a time, so what runs ahead is the draft:

    standing   d1 d2 d3 d4 | e1 e2 | e3 e4 | ...      pieces; the first k of all this are proposed in each round
    confirmed  d1 d2 d3                               the rest stands and grows
    refuted    d1 x                                   cancelled; the piece under way is the last to be finished

Nothing that stands has rows in the target's cache. Data in: sequences and an inner drafter; data out: chains.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from outdraft.core.drafter import Drafter
from outdraft.core.method import DrafterMethod, arxiv
from outdraft.drafters.shared.composed.ahead import AheadDrafter, Standing, build_rewinding
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import MOST_NODES, check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAheadOptions:
    """Who drafts, and how far. Raises `ConfigError` naming what is out of range."""

    # the drafter that works ahead: a name, or {"method": NAME, OPTION: VALUE}
    drafter: str | Mapping[str, Any] = field(default_factory=lambda: {"method": "draft_model"})
    piece: int = 2  # how many tokens are drafted before the drafter looks whether the target's pass is over
    window: int = 32  # how many drafted tokens may wait to be verified

    def __post_init__(self) -> None:
        check_range(self, "piece", "window", least=1, most=MOST_NODES)
        if self.window < self.piece:
            raise ConfigError(
                f"piece={self.piece}, window={self.window}: a piece has at least 1 token, the window at least a piece"
            )


def over(options: RunAheadOptions, inner: Drafter) -> AheadDrafter:
    """Over this inner drafter."""

    def missing(standing: Standing, num_proposed: int) -> int:
        return min(options.piece, options.window - len(standing.guess.tokens))

    return AheadDrafter(inner, missing, patient=False)


METHOD: DrafterMethod[RunAheadOptions, TargetPort, AheadDrafter] = DrafterMethod(
    name="run_ahead",
    summary="drafts on for as long as the target's pass takes, and cancels what turns out wrong",
    build=lambda options, port: over(options, build_rewinding(options.drafter, port, "run_ahead")),
    options=RunAheadOptions,
    paper=arxiv("2407.11798", "PipeInfer: accelerating LLM inference using asynchronous pipelined speculation"),
)

"""EAGLE: a one-layer network drafts at feature level, fed with the target's own hidden states.

Li et al., "EAGLE-3: scaling up inference acceleration of large language models via training-time test", 2025,
https://arxiv.org/abs/2503.01840 (features of several layers, no feature loss), over EAGLE-2, 2024,
https://arxiv.org/abs/2406.16858 (dynamic tree), and EAGLE, 2024, https://arxiv.org/abs/2401.15077.
"""

from dataclasses import dataclass

from outdraft.core.method import arxiv
from outdraft.drafters.eagle.net import load_eagle
from outdraft.drafters.shared.features.drafter import feature_method
from outdraft.drafters.shared.state_options import StateOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class EagleOptions(StateOptions):
    """Which network, which shape. Raises `ConfigError` naming what is out of range."""

    model: str = "zoo:eagle"  # the network: a directory, a hub name, or "zoo:NAME"; it belongs to one target


METHOD = feature_method(
    "eagle",
    load_eagle,
    summary="a small network fed with the target's hidden states drafts a chain or a dynamic tree",
    options=EagleOptions,
    paper=arxiv(
        "2503.01840", "EAGLE-3: scaling up inference acceleration of large language models via training-time test"
    ),
    also_called=("eagle3",),
)

"""EAGLE-3 in its published layout: a network with its own head over three of the target's states.

Li et al., "EAGLE-3: scaling up inference acceleration of large language models via training-time test", 2025,
https://arxiv.org/abs/2503.01840.
"""

from outdraft.core.method import arxiv
from outdraft.drafters.eagle3.formats import load_eagle3
from outdraft.drafters.shared.features.drafter import feature_method

METHOD = feature_method(
    "eagle3",
    lambda directory, port: load_eagle3(directory, port.facts, lent=port),
    summary="EAGLE-3 and 3.1 as published: a head of its own, perhaps of fewer tokens, on three of the target's states",
    paper=arxiv(
        "2503.01840", "EAGLE-3: scaling up inference acceleration of large language models via training-time test"
    ),
    also_called=("eagle",),
)

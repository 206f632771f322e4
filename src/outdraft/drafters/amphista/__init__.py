"""Amphista: heads on the target's last state that see each other before they guess.

Li et al., "Amphista: bi-directional multi-head decoding for accelerating LLM inference", 2024,
https://arxiv.org/abs/2406.13170.
"""

from outdraft.core.method import arxiv
from outdraft.drafters.amphista.net import AmphistaNet
from outdraft.drafters.shared.heads.drafter import head_method

METHOD = head_method(
    AmphistaNet,
    summary="heads on the target's last state that see each other before they guess; a chain or a tree",
    paper=arxiv("2406.13170", "Amphista: bi-directional multi-head decoding for accelerating LLM inference"),
)

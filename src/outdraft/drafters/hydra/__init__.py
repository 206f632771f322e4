"""Hydra: heads on the target's last state, each of which knows the tokens that were guessed before its own.

Ankner et al., "Hydra: sequentially-dependent draft heads for Medusa decoding", 2024, https://arxiv.org/abs/2402.05109.
"""

from outdraft.core.method import arxiv
from outdraft.drafters.hydra.formats import FILES, FORMATS
from outdraft.drafters.hydra.net import HydraNet
from outdraft.drafters.shared.heads.drafter import head_method

METHOD = head_method(
    HydraNet,
    summary="heads on the target's last state, each of which knows the tokens guessed before; a chain or a tree",
    paper=arxiv("2402.05109", "Hydra: sequentially-dependent draft heads for Medusa decoding"),
    formats=FORMATS,
    also=FILES,
)

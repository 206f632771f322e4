"""Medusa: several heads on the target's last state each guess one of the next tokens.

Cai et al., 2024, https://arxiv.org/abs/2401.10774. A head does not know what the heads before it said.
"""

from outdraft.core.method import arxiv
from outdraft.drafters.medusa.formats import FILES, FORMATS
from outdraft.drafters.medusa.net import MedusaNet
from outdraft.drafters.shared.heads.drafter import head_method

METHOD = head_method(
    MedusaNet,
    summary="heads on the target's last state, each of which guesses one of the next tokens; a chain or a tree",
    paper=arxiv("2401.10774", "Medusa: simple LLM inference acceleration framework with multiple decoding heads"),
    formats=FORMATS,
    also=FILES,
)

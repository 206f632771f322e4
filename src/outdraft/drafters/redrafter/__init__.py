"""ReDrafter: one small recurrent head on the target's last state, applied once for each token; a beam of its guesses.

Cheng et al., "Recurrent drafter for fast speculative decoding in large language models", 2024,
https://arxiv.org/abs/2403.09919.
"""

from outdraft.core.method import arxiv
from outdraft.drafters.redrafter.net import ReDrafterNet
from outdraft.drafters.shared.heads.drafter import head_method

METHOD = head_method(
    ReDrafterNet,
    summary="one small recurrent head on the target's last state, applied once for each token; a chain or a beam",
    paper=arxiv("2403.09919", "Recurrent drafter for fast speculative decoding in large language models"),
)

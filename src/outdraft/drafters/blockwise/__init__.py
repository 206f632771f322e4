"""Blockwise parallel decoding: small networks on the target's last state, read by the target's own head.

Stern, Shazeer and Uszkoreit, "Blockwise parallel decoding for deep autoregressive models", 2018,
https://arxiv.org/abs/1811.03115.
"""

from outdraft.core.method import arxiv
from outdraft.drafters.blockwise.net import BlockwiseNet
from outdraft.drafters.shared.heads.drafter import head_method

METHOD = head_method(
    BlockwiseNet,
    summary="small networks on the target's last state, read by the target's own head; a chain or a tree",
    paper=arxiv("1811.03115", "Blockwise parallel decoding for deep autoregressive models"),
)

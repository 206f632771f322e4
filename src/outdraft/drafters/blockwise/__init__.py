"""Blockwise parallel decoding: small networks on the target's last state, read by the target's own head.

Stern, Shazeer and Uszkoreit, "Blockwise parallel decoding for deep autoregressive models", 2018,
https://arxiv.org/abs/1811.03115.
"""

from outdraft.core.method import DrafterMethod, Paper
from outdraft.drafters.blockwise.drafter import build
from outdraft.drafters.shared.heads.config import HeadOptions, head_shape

METHOD = DrafterMethod(
    name="blockwise",
    summary="small networks on the target's last state, read by the target's own head; a chain or a tree",
    build=build,
    options=HeadOptions,
    paper=Paper(
        title="Blockwise parallel decoding for deep autoregressive models",
        year=2018,
        link="https://arxiv.org/abs/1811.03115",
    ),
    shape_of=head_shape,
    forms={"chain": {"width": 1}, "tree": {"width": 4}},
)

"""Blocks with convolutions, and a selector that links candidates."""

from contracts.sides import random_heads, stutterer
from contracts.taught import taught

from outdraft.testing.spec_table import DrafterRow

SHAPE = {
    "taps": (0, 2),
    "num_layers": 2,
    "num_heads": 2,
    "num_kv_heads": 1,
    "head_dim": 8,
    "block_size": 5,
    "conv_group_size": 8,
    "selector_rank": 4,
    "selector_top_k": 5,
}
blocks = random_heads("dflash2", **SHAPE)

ROWS = [
    DrafterRow(drafter="dflash2", side=blocks),
    DrafterRow(drafter="dflash2", label="chain", side=blocks, options={"width": 1, "sample": "match"}),
    DrafterRow(
        drafter="dflash2",
        label="drawn, fewer slots",
        side=blocks,
        options={"width": 2, "sample": "match", "runtime_block_size": 3},
    ),
]
GROUNDS = [DrafterRow(drafter="dflash2", target=stutterer, side=taught("dflash2", **SHAPE))]

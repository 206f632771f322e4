"""Blocks written in one pass: a tree over what each slot might be, the chain of a block's slots, fewer tokens."""

from contracts.sides import random_heads, stutterer
from contracts.taught import taught

from outdraft.testing.spec_table import DrafterRow

SHAPE = {"taps": (0, 2), "num_layers": 2, "num_heads": 2, "num_kv_heads": 1, "head_dim": 8, "block_size": 5}
blocks = random_heads("dflash", **SHAPE)

ROWS = [
    DrafterRow(drafter="dflash", side=blocks),
    DrafterRow(drafter="dflash", label="chain", side=blocks, options={"width": 1, "sample": "match"}),
    DrafterRow(
        drafter="dflash",
        label="windows, fewer slots",
        side=random_heads("dflash", **SHAPE, window=4),
        options={"width": 2, "sample": "match", "runtime_block_size": 3},
    ),
]
GROUNDS = [DrafterRow(drafter="dflash", target=stutterer, side=taught("dflash", **SHAPE))]
LEARNING = {"windows": {"window": 4}}

"""Blocks whose slots hear a refiner of the tokens before them."""

from contracts.sides import random_heads, stutterer
from contracts.taught import taught

from outdraft.testing.spec_table import DrafterRow

SHAPE = {"taps": (0, 2), "num_layers": 2, "num_heads": 2, "num_kv_heads": 1, "head_dim": 8, "block_size": 5, "rank": 4}
blocks = random_heads("xpress", **SHAPE)

ROWS = [
    DrafterRow(drafter="xpress", side=blocks),
    DrafterRow(drafter="xpress", label="chain", side=blocks, options={"width": 1, "sample": "match"}),
    DrafterRow(
        drafter="xpress",
        label="drawn, fewer slots",
        side=blocks,
        options={"width": 2, "sample": "match", "runtime_block_size": 3},
    ),
]
GROUNDS = [DrafterRow(drafter="xpress", target=stutterer, side=taught("xpress", **SHAPE))]
LEARNING = {"from the anchor": {"from_anchor": True, "rank": 4, "ratio": 1}}

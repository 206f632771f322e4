"""Blocks whose slots hear a recurrent state of the tokens before them."""

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
    "rank": 4,
    "state": 6,
}
blocks = random_heads("domino", **SHAPE)

ROWS = [
    DrafterRow(drafter="domino", side=blocks),
    DrafterRow(drafter="domino", label="chain", side=blocks, options={"width": 1, "sample": "match"}),
    DrafterRow(
        drafter="domino",
        label="behind a prefix, fewer slots",
        side=random_heads("domino", **SHAPE, from_anchor=False, prefix=1),
        options={"width": 2, "sample": "match", "runtime_block_size": 3},
    ),
]
GROUNDS = [DrafterRow(drafter="domino", target=stutterer, side=taught("domino", **SHAPE))]
LEARNING = {"behind a prefix": {"from_anchor": False, "prefix": 1, "rank": 4, "state": 6}}

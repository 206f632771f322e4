"""Slots with a query each: a tree over what each slot might be, the chain of a block's slots, fewer tokens."""

from contracts.sides import random_heads, stutterer
from contracts.taught import taught

from outdraft.testing.spec_table import DrafterRow

SHAPE = {"taps": (0, 2), "num_layers": 2, "num_heads": 2, "num_kv_heads": 1, "head_dim": 8, "block_size": 5}
slots = random_heads("specdec", **SHAPE)

ROWS = [
    DrafterRow(drafter="specdec", side=slots),
    DrafterRow(
        drafter="specdec",
        label="chain, fewer slots",
        side=slots,
        options={"width": 1, "sample": "match", "runtime_block_size": 3},
    ),
]
GROUNDS = [DrafterRow(drafter="specdec", target=stutterer, side=taught("specdec", **SHAPE))]

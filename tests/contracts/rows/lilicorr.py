"""Blocks whose slots' candidates are linked by a network over all of them."""

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
    "candidates": 5,
    "chain_size": 8,
    "chain_heads": 2,
    "factor_dim": 6,
}
blocks = random_heads("lilicorr", **SHAPE)

ROWS = [
    DrafterRow(drafter="lilicorr", side=blocks),
    DrafterRow(drafter="lilicorr", label="chain", side=blocks, options={"width": 1, "sample": "match"}),
    DrafterRow(
        drafter="lilicorr",
        label="drawn, fewer slots",
        side=blocks,
        options={"width": 2, "sample": "match", "runtime_block_size": 3},
    ),
]
GROUNDS = [DrafterRow(drafter="lilicorr", target=stutterer, side=taught("lilicorr", **SHAPE))]
LEARNING = {"as wide as the target": {"candidates": 3, "chain_size": 0, "chain_heads": 2, "factor_dim": 6}}

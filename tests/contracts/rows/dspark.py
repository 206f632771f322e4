"""Blocks whose slots hear the token before them: plain, gated, recurrent."""

from contracts.sides import random_heads, stutterer
from contracts.taught import taught

from outdraft.testing.spec_table import DrafterRow

SHAPE = {"taps": (0, 2), "num_layers": 2, "num_heads": 2, "num_kv_heads": 1, "head_dim": 8, "block_size": 5, "rank": 4}
blocks = random_heads("dspark", **SHAPE)

ROWS = [
    DrafterRow(drafter="dspark", side=blocks),
    DrafterRow(drafter="dspark", label="chain", side=blocks, options={"width": 1, "sample": "match"}),
    DrafterRow(
        drafter="dspark",
        label="recurrent, fewer slots",
        side=random_heads("dspark", **SHAPE, head="rnn"),
        options={"width": 2, "sample": "match", "runtime_block_size": 3},
    ),
]
GROUNDS = [DrafterRow(drafter="dspark", target=stutterer, side=taught("dspark", **SHAPE))]
LEARNING = {"gated": {"head": "gated", "rank": 4}, "rnn": {"head": "rnn", "rank": 4}}

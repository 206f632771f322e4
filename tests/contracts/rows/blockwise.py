"""Layers before the target's own head: trees, and chains that are drawn."""

from contracts.sides import random_heads, stutterer
from contracts.taught import taught

from outdraft.testing.spec_table import DrafterRow

heads = random_heads("blockwise")

ROWS = [
    DrafterRow(drafter="blockwise", side=heads),
    DrafterRow(drafter="blockwise", label="chain", side=heads, options={"width": 1, "sample": "match"}),
    DrafterRow(drafter="blockwise", label="fewer tokens", side=random_heads("blockwise", draft_vocab_size=5)),
]
GROUNDS = [DrafterRow(drafter="blockwise", target=stutterer, side=taught("blockwise"))]
LEARNING = {"fewer tokens": {"draft_vocab_size": 5}}

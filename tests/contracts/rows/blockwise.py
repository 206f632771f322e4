"""Layers before the target's own head: trees, and chains that are drawn."""

from contracts.sides import random_heads, stutterer
from contracts.taught import taught

from outdraft.testing.spec_table import DrafterRow

heads = random_heads("blockwise")

ROWS = [
    DrafterRow(drafter="blockwise", side=heads),
    DrafterRow(drafter="blockwise", label="chain", side=heads, options={"width": 1, "sample": "match"}),
]
GROUNDS = [DrafterRow(drafter="blockwise", target=stutterer, side=taught("blockwise"))]

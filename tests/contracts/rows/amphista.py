"""Heads that see each other: trees, and chains that are drawn."""

from contracts.sides import random_heads, stutterer
from contracts.taught import taught

from outdraft.testing.spec_table import DrafterRow

heads = random_heads("amphista")

ROWS = [
    DrafterRow(drafter="amphista", side=heads),
    DrafterRow(drafter="amphista", label="chain", side=heads, options={"width": 1, "sample": "match"}),
    DrafterRow(drafter="amphista", label="fewer tokens", side=random_heads("amphista", draft_vocab_size=5)),
]
GROUNDS = [DrafterRow(drafter="amphista", target=stutterer, side=taught("amphista"))]
LEARNING = {"alone": {"bidirectional": False, "own_projections": False}}

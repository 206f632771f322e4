"""A recurrent head: beams, and chains that are drawn."""

from contracts.sides import random_heads, stutterer
from contracts.taught import taught

from outdraft.testing.spec_table import DrafterRow

heads = random_heads("redrafter")

ROWS = [
    DrafterRow(drafter="redrafter", side=heads),
    DrafterRow(drafter="redrafter", label="chain", side=heads, options={"width": 1, "sample": "match"}),
    DrafterRow(
        drafter="redrafter",
        label="fewer tokens",
        side=random_heads("redrafter", draft_vocab_size=5, own_projections=False),
    ),
]
GROUNDS = [DrafterRow(drafter="redrafter", target=stutterer, side=taught("redrafter"))]
LEARNING = {"borrowed": {"own_projections": False}}

"""Heads on the target's last state: trees, and chains that are drawn."""

from contracts.sides import random_heads, stutterer
from contracts.taught import taught, taught_along

from outdraft.testing.spec_table import DrafterRow

heads, borrowed = random_heads("medusa"), random_heads("medusa", own_projections=False)

ROWS = [
    DrafterRow(drafter="medusa", side=heads),
    DrafterRow(drafter="medusa", label="chain", side=heads, options={"width": 1, "sample": "match"}),
    DrafterRow(
        drafter="medusa", label="fewer tokens", side=random_heads("medusa", draft_vocab_size=5, own_projections=False)
    ),
]
own_target, own_heads = taught_along("medusa", stutterer, joint=True)  # Medusa-2
GROUNDS = [
    DrafterRow(drafter="medusa", target=stutterer, side=taught("medusa")),
    DrafterRow(drafter="medusa", label="joint", target=own_target, side=own_heads),
]
LEARNING = {
    "fewer tokens": {"draft_vocab_size": 5, "own_projections": False},
    "borrowed": {"own_projections": False},
    "joint": {"joint": True},
}

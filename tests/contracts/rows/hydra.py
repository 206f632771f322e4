"""Heads on the target's last state: trees, and chains that are drawn."""

from contracts.sides import random_heads, stutterer, untrained_heads

from outdraft.testing.spec_table import DrafterRow

heads = random_heads("hydra")

ROWS = [
    DrafterRow(drafter="hydra", side=heads),
    DrafterRow(drafter="hydra", label="chain", side=heads, options={"width": 1, "sample": "match"}),
]
GROUNDS = [DrafterRow(drafter="hydra", target=stutterer, side=untrained_heads("hydra"))]

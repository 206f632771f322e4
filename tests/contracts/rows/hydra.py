"""Heads on the target's last state: trees, and chains that are drawn; with a layer below them, and more of them."""

from contracts.sides import random_heads, stutterer
from contracts.taught import taught

from outdraft.testing.spec_table import DrafterRow

PLUS = {"prefix_layer": True, "num_layers": 3}
heads, plus = random_heads("hydra"), random_heads("hydra", **PLUS)

ROWS = [
    DrafterRow(drafter="hydra", side=heads),
    DrafterRow(drafter="hydra", label="chain", side=heads, options={"width": 1, "sample": "match"}),
    DrafterRow(drafter="hydra", label="likeliest", side=heads, options={"sample": "greedy"}),
    DrafterRow(drafter="hydra", label="plus", side=plus),
    DrafterRow(drafter="hydra", label="plus-chain", side=plus, options={"width": 1, "sample": "match"}),
    DrafterRow(drafter="hydra", label="fewer tokens", side=random_heads("hydra", draft_vocab_size=5)),
]
GROUNDS = [
    DrafterRow(drafter="hydra", target=stutterer, side=taught("hydra")),
    DrafterRow(drafter="hydra", label="plus", target=stutterer, side=taught("hydra", **PLUS)),
]
LEARNING = {"fewer tokens": {"draft_vocab_size": 5}, "plus": {**PLUS, "noise": 0.1, "own_projections": False}}

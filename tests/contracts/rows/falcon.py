"""Two tokens a pass, or three: a tree, a chain."""

from contracts.sides import random_heads, stutterer
from contracts.taught import taught

from outdraft.testing.spec_table import DrafterRow

net = random_heads("falcon")

ROWS = [
    DrafterRow(drafter="falcon", side=net),
    DrafterRow(drafter="falcon", label="chain", side=net, options={"width": 1, "sample": "match"}),
    DrafterRow(
        drafter="falcon",
        label="three",
        side=random_heads("falcon", block_size=3),
        options={"width": 2, "sample": "match", "best_first": False},
    ),
    DrafterRow(drafter="falcon", label="fewer tokens", side=random_heads("falcon", draft_vocab_size=5)),
]
GROUNDS = [DrafterRow(drafter="falcon", target=stutterer, side=taught("falcon"))]
LEARNING = {"fewer tokens": {"draft_vocab_size": 5}, "three": {"block_size": 3}}

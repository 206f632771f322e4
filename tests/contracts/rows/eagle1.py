"""A network on the target's last feature: static and dynamic trees, chains that are drawn."""

from contracts.sides import random_heads, stutterer
from contracts.taught import taught

from outdraft.testing.spec_table import DrafterRow

eagle1_net = random_heads("eagle1")

ROWS = [
    DrafterRow(drafter="eagle1", side=eagle1_net),
    DrafterRow(drafter="eagle1", label="dynamic", side=eagle1_net, options={"tree": "dynamic", "nodes": 12}),
    DrafterRow(drafter="eagle1", label="likeliest", side=eagle1_net, options={"sample": "greedy"}),
    DrafterRow(drafter="eagle1", label="chain", side=eagle1_net, options={"width": 1, "sample": "match"}),
    DrafterRow(drafter="eagle1", label="fewer tokens", side=random_heads("eagle1", draft_vocab_size=5)),
]
GROUNDS = [
    DrafterRow(drafter="eagle1", target=stutterer, side=taught("eagle1")),
    # the recipe's ten children would be every token of a vocabulary of seven
    DrafterRow(drafter="eagle1", label="eagle2", target=stutterer, side=taught("eagle1"), options={"width": 3}),
]
LEARNING = {"fewer tokens": {"draft_vocab_size": 5}}

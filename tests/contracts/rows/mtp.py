"""A layer that is applied to its own output: trees, chains that are drawn."""

from contracts.sides import random_heads, stutterer
from contracts.taught import taught

from outdraft.testing.spec_table import DrafterRow

mtp_net = random_heads("mtp")


ROWS = [
    DrafterRow(drafter="mtp", side=mtp_net),
    DrafterRow(drafter="mtp", label="chain", side=mtp_net, options={"width": 1, "sample": "match"}),
    DrafterRow(drafter="mtp", label="fewer tokens", side=random_heads("mtp", draft_vocab_size=5)),
]
GROUNDS = [DrafterRow(drafter="mtp", target=stutterer, side=taught("mtp"))]
LEARNING = {"fewer tokens": {"draft_vocab_size": 5}}

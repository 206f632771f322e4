"""Slots that collapse: trees, and the chain of each slot's best token."""

from contracts.sides import random_heads, stutterer
from contracts.taught import taught

from outdraft.testing.spec_table import DrafterRow

slots = random_heads("ctc")

ROWS = [
    DrafterRow(drafter="ctc", side=slots),
    DrafterRow(drafter="ctc", label="chain", side=slots, options={"width": 1}),
    DrafterRow(drafter="ctc", label="fewer tokens", side=random_heads("ctc", draft_vocab_size=5)),
]
GROUNDS = [DrafterRow(drafter="ctc", target=stutterer, side=taught("ctc"))]
LEARNING = {"fewer tokens": {"draft_vocab_size": 5}}

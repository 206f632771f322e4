"""A draft model whose tokenizer merges other pairs: drawn over what both have, and the best of it."""

from contracts.sides import letter_codec, rewritten_twin, stranger, toy_codec

from outdraft.testing.spec_table import DrafterRow

ROWS = [
    DrafterRow(drafter="vocab_map", side=stranger, codec=toy_codec),
    DrafterRow(drafter="vocab_map", label="greedy", side=stranger, codec=toy_codec, options={"sample": "greedy"}),
]
GROUNDS = [DrafterRow(drafter="vocab_map", side=rewritten_twin, codec=letter_codec)]

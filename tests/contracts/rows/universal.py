"""A draft model whose tokenizer merges other pairs."""

from contracts.sides import letter_codec, rewritten_twin, stranger, toy_codec

from outdraft.testing.spec_table import DrafterRow

ROWS = [DrafterRow(drafter="universal", side=stranger, codec=toy_codec)]
GROUNDS = [DrafterRow(drafter="universal", side=rewritten_twin, codec=letter_codec)]

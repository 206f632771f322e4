"""A draft model whose tokenizer merges other pairs."""

from contracts.sides import stranger, toy_codec

from outdraft.testing.spec_table import DrafterRow

ROWS = [DrafterRow(drafter="universal", side=stranger, codec=toy_codec)]

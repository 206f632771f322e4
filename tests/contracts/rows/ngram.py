"""Prompt look-up."""

from outdraft.testing.spec_table import DrafterRow

ROWS = [DrafterRow(drafter="ngram"), DrafterRow(drafter="ngram", label="tree", options={"width": 3})]

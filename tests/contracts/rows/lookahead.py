"""Lookahead decoding."""

from outdraft.testing.spec_table import DrafterRow

ROWS = [DrafterRow(drafter="lookahead")]

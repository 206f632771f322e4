"""Lookahead decoding."""

from contracts.sides import stutterer

from outdraft.testing.spec_table import DrafterRow

ROWS = [DrafterRow(drafter="lookahead")]
GROUNDS = [DrafterRow(drafter="lookahead", target=stutterer)]

"""Copies from references; the suite's requests bring none, so here it looks in their own text."""

from outdraft.testing.spec_table import DrafterRow

ROWS = [DrafterRow(drafter="llma", options={"index_output": True})]

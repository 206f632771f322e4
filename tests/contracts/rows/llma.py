"""Copies from a document that holds one of the texts, and from the request's own text."""

from contracts.sides import all_its_texts, its_own_text, stutterer

from outdraft.testing.spec_table import DrafterRow

ROWS = [DrafterRow(drafter="llma", references=its_own_text, options={"index_output": True})]
GROUNDS = [DrafterRow(drafter="llma", target=stutterer, references=all_its_texts)]

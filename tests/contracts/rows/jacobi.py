"""Jacobi iteration, from each kind of fill."""

from contracts.sides import stutterer

from outdraft.testing.spec_table import DrafterRow

ROWS = [
    DrafterRow(drafter="jacobi"),
    DrafterRow(drafter="jacobi", label="random", options={"fill": "random", "window": 3}),
]
GROUNDS = [DrafterRow(drafter="jacobi", target=stutterer)]

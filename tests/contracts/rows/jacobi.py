"""Jacobi iteration, from each kind of fill."""

from outdraft.testing.spec_table import DrafterRow

ROWS = [
    DrafterRow(drafter="jacobi"),
    DrafterRow(drafter="jacobi", label="random", options={"fill": "random", "window": 3}),
]

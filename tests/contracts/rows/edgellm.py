"""Paced trees; small ones, so that the suite stays quick."""

from contracts.sides import twin

from outdraft.testing.spec_table import DrafterRow

ROWS = [DrafterRow(drafter="edgellm", side=twin, options={"nodes": 6, "branch": 2, "window": 2})]

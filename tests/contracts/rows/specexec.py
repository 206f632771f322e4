"""Best-first trees; small ones, so that the suite stays quick."""

from contracts.sides import twin

from outdraft.testing.spec_table import DrafterRow

ROWS = [DrafterRow(drafter="specexec", side=twin, options={"nodes": 24, "beams": 4, "branch": 3})]

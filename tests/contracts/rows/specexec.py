"""Best-first trees; small ones, so that the suite stays quick."""

from contracts.sides import twin

from outdraft.testing.spec_table import DrafterRow

ROWS = [DrafterRow(drafter="specexec", side=twin, options={"nodes": 24, "beams": 4, "branch": 3})]
# the recipes' sixteen children would be every token of a vocabulary of seven
GROUNDS = [
    DrafterRow(drafter="specexec", label=name, side=twin, options={"nodes": 64, "beams": 8, "branch": 3})
    for name in ("specexec", "specexec_streaming")
]

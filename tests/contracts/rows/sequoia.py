"""Sequoia's trees: a given shape, and one that is measured, counted and drawn."""

from contracts.sides import twin

from outdraft.testing.spec_table import DrafterRow

GIVEN = {"acceptance": (0.6, 0.2, 0.1), "verify_cost": (1.0, 1.05), "nodes": 8, "depth": 4}

ROWS = [
    DrafterRow(drafter="sequoia", side=twin, options=GIVEN),
    DrafterRow(drafter="sequoia", label="measured", side=twin, options={"nodes": 6, "depth": 3}, remembers=True),
]

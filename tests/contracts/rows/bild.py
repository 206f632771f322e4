"""A small model that hands over when it is unsure."""

from contracts.sides import twin

from outdraft.testing.spec_table import DrafterRow

ROWS = [DrafterRow(drafter="bild", label="bild", side=twin, options={"fallback_threshold": 0.25})]

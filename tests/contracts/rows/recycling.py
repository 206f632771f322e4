"""Token recycling, whose matrix outlives requests. A smaller tree: the suite's exact rows are computed one by one."""

from outdraft.testing.spec_table import DrafterRow

ROWS = [DrafterRow(drafter="recycling", options={"width": 4, "levels": (4, 4, 2, 1)}, remembers=True)]

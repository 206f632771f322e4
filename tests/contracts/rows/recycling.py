"""Token recycling, whose matrix outlives requests. A smaller tree: the suite's exact rows are computed one by one."""

from outdraft.testing.spec_table import DrafterRow

_SMALL = {"width": 4, "levels": (4, 4, 2, 1)}
ROWS = [DrafterRow(drafter="recycling", options=_SMALL, remembers=True)]
# the recipe's eight successors would be every token of a vocabulary of seven
GROUNDS = [DrafterRow(drafter="recycling", label="token_recycling", options=_SMALL, remembers=True)]

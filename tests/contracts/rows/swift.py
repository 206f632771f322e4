"""A search while writing: chains, and chains with siblings."""

from outdraft.testing.spec_table import DrafterRow

_EAGER = {"keep_ends": False, "ratio": 0.3, "context": 3, "confidence_threshold": 0.2}
ROWS = [
    DrafterRow(drafter="swift", options=_EAGER, remembers=True),
    DrafterRow(drafter="swift", label="tree", options={**_EAGER, "siblings": True}, remembers=True),
]
# the recipe keeps the ends, which are all of two layers
GROUNDS = [DrafterRow(drafter="swift", label="swift", options={**_EAGER, "siblings": True}, remembers=True)]

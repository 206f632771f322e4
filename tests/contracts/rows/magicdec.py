"""The target over few of its keys; the recipe too, whose 512 keys would be all of a short text."""

from outdraft.testing.spec_table import DrafterRow

_SNAPKV = {"select": "snapkv", "budget": 6, "observe": 3, "refresh": 4}
ROWS = [
    DrafterRow(drafter="magicdec", options={"budget": 5, "sinks": 1, "refresh": 3}),
    DrafterRow(drafter="magicdec", label="snapkv", options=_SNAPKV),
]
GROUNDS = [DrafterRow(drafter="magicdec", label="magicdec", options=_SNAPKV)]

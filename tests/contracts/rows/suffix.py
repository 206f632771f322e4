"""Suffix decoding: outputs of finished requests stay, up to a number."""

from outdraft.testing.spec_table import DrafterRow

ROWS = [
    DrafterRow(drafter="suffix", options={"max_sequences": 3, "nodes": 10}, remembers=True),
    DrafterRow(drafter="suffix", label="alone", options={"max_sequences": 0, "tree": False}),
]

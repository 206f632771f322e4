"""Attentions dropped by what the prompt says of them."""

from outdraft.testing.spec_table import DrafterRow

ROWS = [DrafterRow(drafter="on_the_fly_skip", options={"threshold": 0.5, "slack": 0.5, "keep_ends": False})]

"""Attentions dropped by what the prompt says of them: some that do little, and others too, or no guess is wrong."""

from contracts.sides import quiet_middle

from outdraft.testing.spec_table import DrafterRow

WRONG_TOO = {"threshold": 0.5, "slack": 0.5, "keep_ends": False}
ROWS = [DrafterRow(drafter="on_the_fly_skip", target=quiet_middle, options=WRONG_TOO)]
GROUNDS = [DrafterRow(drafter="on_the_fly_skip", label="draft_on_the_fly", target=quiet_middle, options=WRONG_TOO)]

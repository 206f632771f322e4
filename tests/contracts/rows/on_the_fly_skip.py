"""Attentions dropped by what the prompt says of them: in recipes those that do little, in the suite others too."""

from contracts.sides import quiet_middle

from outdraft.testing.spec_table import DrafterRow

WRONG_TOO = {"threshold": 0.5, "slack": 0.5, "keep_ends": False}
ROWS = [DrafterRow(drafter="on_the_fly_skip", target=quiet_middle, options=WRONG_TOO)]

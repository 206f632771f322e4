"""Over a draft model that is mostly right."""

from contracts.sides import inside, twin

from outdraft.testing.spec_table import DrafterRow

ROWS = [DrafterRow(drafter="pearl", side=inside(twin))]

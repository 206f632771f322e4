"""The table: one row for each drafter of the catalogue (some have two shapes to prove). A method without a row fails.

Adding a drafter is a file in `src/outdraft/drafters`, a page in `docs/methods`, and a row here.
"""

from outdraft.testing.spec_table import DrafterRow

ROWS = [
    DrafterRow(drafter="none"),
    DrafterRow(drafter="ngram"),
    DrafterRow(drafter="ngram", label="tree", options={"width": 3}),
    DrafterRow(drafter="lookahead"),
]

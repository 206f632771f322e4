"""A draft model: one that agrees now and then, one that is mostly right, and trees of the latter."""

from functools import partial

from contracts.sides import smaller_model, stutterer, twin
from contracts.taught import taught

from outdraft.testing.spec_table import DrafterRow

ROWS = [
    DrafterRow(drafter="draft_model", side=smaller_model),
    DrafterRow(drafter="draft_model", label="twin", side=twin),
    DrafterRow(drafter="draft_model", label="tree", side=twin, options={"width": 2}),
    DrafterRow(drafter="draft_model", label="beam", side=twin, options={"beam": 3}),
]
GROUNDS = [
    DrafterRow(drafter="draft_model", label="draft_model", target=stutterer, side=taught("draft_model")),
    # the lossy review keeps nearly all that the close twin says
    DrafterRow(drafter="draft_model", label="draft_review_lossy", side=partial(twin, noise=0.2)),
]

"""Masked texts have the target's masked distribution, whatever drafts: look-ups, sampled chains and trees; and a rule
that keeps every guess is noticed under each mask."""

from dataclasses import replace
from functools import partial

import pytest
from contracts.spec_rows import ROWS

from outdraft.testing.contract import sampled_distribution_is_the_targets
from outdraft.testing.contract.distribution import ASKED
from outdraft.testing.contract.masked import EveryOther
from outdraft.testing.subject import Subject

VOCAB = 7


def asked(**changes):
    constraint = changes.pop("constraint", None)
    return replace(ASKED, params=replace(ASKED.params, **changes), constraint=constraint)


MASKS = {
    "constraint": asked(constraint=partial(EveryOther, VOCAB)),
    "bad words": asked(bad_words=((1, 2), (3,)), banned_token_ids=(5,)),
    "allowed": asked(allowed_token_ids=(1, 2, 4, 6), min_p=0.05),
    "prefix": asked(forced_prefix=(2,), bad_words=((2, 3),)),
    "typical": asked(typical_p=0.8, temperature=1.3),
}
SHAPES = [row for row in ROWS if row.drafter in ("ngram", "draft_model", "eagle3", "medusa", "recycling", "jacobi")]
QUICK = [("ngram", "constraint"), ("draft_model", "typical"), ("draft_model-tree", "constraint"), ("ngram", "prefix")]
CASES = [
    pytest.param(row, mask, id=f"{row.name}-{mask}", marks=() if (row.name, mask) in QUICK else pytest.mark.slow)
    for i, row in enumerate(SHAPES)
    for j, mask in enumerate(MASKS)
    if (row.name, mask) in QUICK or (i + j) % len(MASKS) in (0, 2)  # two masks a shape, and they go round
]


@pytest.mark.parametrize(("row", "mask"), CASES)
def test_masked_samples_have_the_masked_distribution(row, mask, tmp_path):
    sampled_distribution_is_the_targets(Subject(row, tmp_path, vocab_size=VOCAB), num_texts=240, asked=MASKS[mask])

"""Recipes whose paper paces them: over one text what their policy decides does change, and the text stays the same."""

from pathlib import Path

import pytest
from contracts.spec_rows import ROWS

from lab.conformance.stand import RecipeSubject, row_of
from outdraft.core.request import Request
from outdraft.engine.naming.recipe import read_recipe
from outdraft.options.params import SamplingParams
from outdraft.testing.subject import run

ASK = Request(prompt_token_ids=(5, 6, 7, 8) * 3, params=SamplingParams(max_tokens=100, ignore_eos=True))
DECIDED = {  # recipe -> what of its budgets must take several values
    "draft_and_verify": lambda budget: budget.confidence,
    "draft_on_the_fly": lambda budget: budget.confidence,
    "calibrated": lambda budget: (budget.calibration, budget.survival),
    "draft_review": lambda budget: budget.depth,
    "draft_review_lossy": lambda budget: budget.depth,
    "sequoia": lambda budget: budget.nodes,
    "routed": lambda budget: budget.arm,
    "switched": lambda budget: budget.depth == 0,
}


@pytest.mark.parametrize("name", DECIDED)
def test_a_policy_moves_what_its_recipe_guesses(name: str, tmp_path: Path):
    recipe = read_recipe(name)
    poor = next(
        row for row in ROWS if row.drafter == "draft_model" and not row.label
    )  # where there is a reason to guess less
    row = poor if recipe.drafter.name == "draft_model" else row_of(recipe, ROWS)
    subject = RecipeSubject(recipe, row, tmp_path)
    engine = subject.engine()
    policy, seen = engine.parts.policy, []
    plan = policy.plan

    def watched(seqs):
        budgets = plan(seqs)
        seen.extend(DECIDED[name](budget) for budget, seq in zip(budgets, seqs, strict=True) if seq.room > 12)
        return budgets

    policy.plan = watched
    (outcome,) = run(engine, [ASK])
    assert len(set(seen)) > 1, seen
    if recipe.lossless:
        assert outcome.seq.output == subject.oracle(ASK)

"""Every recipe that ships: it loads, its options build on a tiny target, and its greedy text is plain decoding's.

A recipe names models of the zoo; here the drafter's own rows say which tiny models stand in their places.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from contracts.spec_rows import ROWS

from outdraft.core.params import SamplingParams
from outdraft.core.registry import find, make_options
from outdraft.core.request import Request
from outdraft.engine.recipe import FOLDER, Recipe, read_recipe, recipe_names
from outdraft.models.base import Decoder
from outdraft.testing.spec_table import DrafterRow
from outdraft.testing.subject import Subject, run

GREEDY = SamplingParams(max_tokens=16)
PROMPTS = ((5, 6, 7, 8, 5, 6, 7, 8, 5, 6), (1, 2, 3))


def subject_of(recipe: Recipe, directory: Path) -> Subject:
    """The recipe's drafter over a tiny target, with the options that its first row needs there."""
    row = next(row for row in ROWS if row.drafter == recipe.drafter.name)

    def side(target: Decoder, folder: Path) -> Mapping[str, Any]:
        return {**recipe.drafter.options, **row.side(target, folder)}

    return Subject(DrafterRow(drafter=row.drafter, side=side, architecture=row.architecture), directory)


@pytest.mark.parametrize("name", recipe_names())
def test_recipe(name: str, tmp_path: Path):
    recipe = read_recipe(name)
    assert (recipe.paper is None) == (recipe.drafter.name == "none"), "a recipe names its paper"
    subject = subject_of(recipe, tmp_path)
    rule, pacing = find("verifier", recipe.verifier.name), find("policy", recipe.policy.name)
    engine = subject.engine()
    engine.parts = replace(
        engine.parts,
        verifier=rule.build(make_options(rule, recipe.verifier.options)),
        policy=pacing.build(make_options(pacing, recipe.policy.options), subject.method.arms(engine.parts.drafter)),
    )
    batch = [Request(prompt_token_ids=prompt, params=GREEDY) for prompt in PROMPTS]
    for outcome in run(engine, batch):
        written = outcome.seq.output
        assert len(written) == GREEDY.max_tokens
        if recipe.lossless:
            assert written == subject.oracle(outcome.seq.request)


def test_files_are_well_formed():
    """The first line says what the recipe is, for whoever opens the file."""
    for path in FOLDER.glob("*.toml"):
        assert path.read_text().startswith("# "), path.name

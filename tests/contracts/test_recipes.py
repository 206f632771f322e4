"""Every recipe that ships: it loads, its options build on a tiny target, and its greedy text is plain decoding's.

A recipe names models of the zoo; the drafter's rows say which tiny models stand in their places.
"""

from pathlib import Path

import pytest
from contracts.spec_rows import ROWS

from outdraft.core.params import SamplingParams
from outdraft.core.request import Request
from outdraft.engine.recipe import FOLDER, read_recipe, recipe_names
from outdraft.testing.conformance.stand import RecipeSubject, row_of
from outdraft.testing.subject import run

GREEDY = SamplingParams(max_tokens=16)
PROMPTS = ((5, 6, 7, 8, 5, 6, 7, 8, 5, 6), (1, 2, 3))


@pytest.mark.parametrize("name", recipe_names())
def test_recipe(name: str, tmp_path: Path):
    recipe = read_recipe(name)
    assert (recipe.paper is None) == (recipe.drafter.name == "none"), "a recipe names its paper"
    subject = RecipeSubject(recipe, row_of(recipe, ROWS), tmp_path)
    batch = [Request(prompt_token_ids=prompt, params=GREEDY) for prompt in PROMPTS]
    for outcome in run(subject.engine(), batch):
        written = outcome.seq.output
        assert len(written) == GREEDY.max_tokens
        if recipe.lossless:
            assert written == subject.oracle(outcome.seq.request)


def test_files_are_well_formed():
    """The first line says what the recipe is, for whoever opens the file."""
    for path in FOLDER.glob("*.toml"):
        assert path.read_text().startswith("# "), path.name

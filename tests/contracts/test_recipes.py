"""Every recipe that ships: it loads, its options build on a tiny target, and its greedy text is plain decoding's.

A recipe names models of the zoo; the drafter's rows say which tiny models stand in their places.
"""

from pathlib import Path

import pytest
from contracts.spec_rows import ROWS

from lab.conformance.stand import RecipeSubject, row_of
from outdraft import LLM
from outdraft.core.registry import names
from outdraft.core.request import Request
from outdraft.engine.naming.recipe import FOLDER, read_recipe, recipe_names
from outdraft.options.errors import OutdraftError
from outdraft.options.params import SamplingParams
from outdraft.testing.subject import run

GREEDY = SamplingParams(max_tokens=16)
PROMPTS = ((5, 6, 7, 8, 5, 6, 7, 8, 5, 6), (1, 2, 3))


@pytest.mark.parametrize("name", recipe_names())
def test_recipe(name: str, tmp_path: Path):
    recipe = read_recipe(name)
    subject = RecipeSubject(recipe, row_of(recipe, ROWS), tmp_path)
    batch = [Request(prompt_token_ids=prompt, params=GREEDY) for prompt in PROMPTS]
    for outcome in run(subject.engine(), batch):
        written = outcome.seq.output
        assert len(written) == GREEDY.max_tokens
        if recipe.lossless:
            assert written == subject.oracle(outcome.seq.request)


def test_files_are_well_formed():
    """The first line says what the recipe is, for a reader of the file, and whether it is our own or a paper's."""
    for path in FOLDER.glob("*.toml"):
        assert path.read_text().startswith("# "), path.name
        is_ours = path.read_text().startswith("# Ours: ") or path.stem == "none"
        assert (read_recipe(path.stem).paper is None) == is_ours, path.name


def test_rules_are_those_of_the_papers():
    """Speculative sampling of chains and of trees; "the best exact rule" is a recipe of its own."""
    rules = {
        "rejection": ("draft_model", "draft_and_verify", "draft_on_the_fly", "kangaroo", "layerskip", "magicdec"),
        "multi_draft": ("specinfer", "swift", "sequoia", "mcsd", "rsd", "rsd_s"),
        "auto": ("best_exact",),
    }
    here = set(recipe_names())  # a method that was taken out takes its recipes with it
    for rule, recipes in rules.items():
        for name in here.intersection(recipes):
            assert read_recipe(name).verifier.name == rule, name


PACED = {  # a policy, and one inside it
    "auto": "auto",
    "bandit_spec": "bandit",
    "calibrated": "calibrated",
    "specdec_plus_plus": "acceptance_head",
    "edgellm": "branch_pacing",
    "eagle2": "dynamic_tree",
    "draft_and_verify": "self_tuning",
    "draft_review": "fallback history",
    "draft_review_lossy": "fallback history",
    "sequoia": "hardware_tree",
    "switched": "probe",
    "routed": "routing",
    "hf_assisted": "heuristic",
    "hf_dynamic": "roc",
    "kangaroo": "threshold",
    "on_the_fly": "estimator",
}


def paced_by(name: str) -> str:
    """A recipe's policy, and those inside it."""
    policy = read_recipe(name).policy
    inside = (one["name"] for one in policy.options.values() if isinstance(one, dict))
    return " ".join([policy.name, *inside])


@pytest.mark.parametrize("name", sorted(set(PACED) & set(recipe_names())))
def test_recipes_are_paced_as_their_papers_say(name):
    assert paced_by(name) == PACED[name]


def test_every_policy_paces_a_recipe():
    """A policy that paces none is one whose recipe was taken out with a method."""
    paced = {policy for name in recipe_names() for policy in paced_by(name).split()}
    gone = {policy for name, said in PACED.items() if name not in recipe_names() for policy in said.split()}
    assert set(names("policy")) - paced <= gone


def test_the_page_names_the_recipes_that_do_not_run_on_the_zoos_target_as_they_are():
    """Those that need a datastore, or heads that do not ship, and the policy whose head is trained for a draft."""
    llm, refused = LLM("zoo:target", drafter="none"), {}
    for name in recipe_names():
        try:
            llm.with_drafter(f"recipe:{name}")
        except OutdraftError as error:
            refused[name] = str(error)
    assert "specdec_plus_plus" in refused
    for name, told in refused.items():
        is_lacking = "datastore" in told or "leaves the role 'head' to you" in told
        assert is_lacking or name == "specdec_plus_plus", (name, told)
    assert "--out DRAFT/acceptance_head" in refused["specdec_plus_plus"]

"""Recipes and the other ways to say what drafts: one meaning each, and errors that name the cure."""

from pathlib import Path

import pytest

from outdraft import LLM, SamplingParams
from outdraft.engine.naming.recipe import read_recipe, recipe_names
from outdraft.engine.naming.words import Words
from outdraft.options.errors import ConfigError

GREEDY = SamplingParams(max_tokens=16)
MINE = """
[paper]
title = "Mine"
year = 2026
link = "https://example.org"

[drafter]
name = "ngram"

[drafter.options]
max_ngram = 4
min_ngram = 2

[policy]
name = "fixed"

[policy.options]
num_speculative_tokens = 6
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(MINE)
    return path


def test_a_recipe_of_ones_own(mine, model_dir):
    llm = LLM(model_dir, dtype="float32", drafter=mine)
    assert llm.config["recipe"] == {
        "name": "mine",
        "paper": {"title": "Mine", "year": 2026, "link": "https://example.org"},
        "modifies_target": False,
    }
    assert [llm.config["drafter"][key] for key in ("name", "max_ngram", "min_ngram")] == ["ngram", 4, 2]
    assert llm.config["policy"]["num_speculative_tokens"] == 6 and llm.config["verifier"]["name"] == "auto"
    plain = LLM(model_dir, drafter="none", dtype="float32")
    assert "recipe" not in plain.config
    assert llm.generate("abcabc", GREEDY).token_ids == plain.generate("abcabc", GREEDY).token_ids
    again = plain.with_drafter({"name": str(mine), "max_ngram": 5}, verifier="sequential")
    assert again.config["drafter"]["max_ngram"] == 5 and again.config["drafter"]["min_ngram"] == 2
    assert again.config["verifier"]["name"] == "sequential" and again.config["recipe"]["name"] == "mine"


def test_what_stands_beside_a_recipe_overrides_it(mine):
    read = Words(drafter={"name": mine, "prompt_lookup_max": 5}, num_speculative_tokens=2).read()
    assert read.drafter_options == {"min_ngram": 2, "prompt_lookup_max": 5}  # an option's other name is the option
    assert read.num_speculative_tokens == 2 and read.policy_options == {"num_speculative_tokens": 6}
    other = Words(drafter=mine, policy="outside.module:METHOD").read()
    assert other.policy_options == {}, "options belong to the policy that they were written for"


def test_shape_and_lossless_are_derived(mine):
    assert read_recipe(mine).shape == "chain" and read_recipe(mine).lossless
    mine.write_text(MINE.replace("max_ngram = 4", "max_ngram = 4\nwidth = 2"))
    assert read_recipe(mine).shape == "tree"
    mine.write_text(MINE + '\n[verifier]\nname = "outdraft.testing.accept_all:METHOD"\n')
    assert not read_recipe(mine).lossless
    mine.write_text("modifies_target = true\n" + MINE)
    assert read_recipe(mine).modifies_target


@pytest.mark.parametrize(
    "text, says",
    [
        ('[drafter]\nname = "ngarm"', "did you mean 'ngram'"),
        ('[drafter]\nname = "ngram"\n[drafter.options]\nmax_ngrm = 2', "did you mean 'max_ngram'"),
        ('[draftr]\nname = "ngram"', "did you mean 'drafter'"),
        ('[drafter]\nname = "ngram"\noption = 1', "did you mean 'options'"),
        ("[verifier]\nname = 'auto'", "names no drafter"),
        ("[drafter]\n", "names no drafter"),
        ('drafter = "ngram"', "names no drafter"),
        ('[drafter]\nname = "ngram"\noptions = 3', "a text and a table"),
        ('[drafter]\nname = "ngram"\n[paper]\ntitle = "x"', "lacks year, link"),
        ('[drafter]\nname = "ngram"\n[paper]\ntitle = "x"\nyear = "y"\nlink = "z"', "year='y' must be a whole"),
        ('paper = 3\n[drafter]\nname = "ngram"', "must be a table"),
        ('[drafter]\nname = "ngram"\n[drafter.options]\nmax_ngram = "x"', "max_ngram='x'"),
        ('[drafter]\nname = "ngram"\n[policy]\nname = "fixed"\n[policy.options]\nmax_nodes = -1', "max_nodes=-1"),
        ('modifies_target = "yes"\n[drafter]\nname = "ngram"', "true or false"),
        ("[drafter", "no valid TOML"),
    ],
)
def test_a_wrong_file_names_the_cure(tmp_path, text, says):
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=says) as error:
        read_recipe(path)
    assert "wrong.toml" in str(error.value)


def test_unknown_recipes():
    with pytest.raises(ConfigError, match=r"did you mean 'none'.*known: .*none"):
        read_recipe("noone")
    with pytest.raises(ConfigError, match=r"nowhere\.toml cannot be read"):
        read_recipe("nowhere.toml")
    assert "none" in recipe_names()


def test_every_spelling_has_one_meaning(model_dir):
    wanted = Words(speculative_config={"method": "draft_model", "model": "m", "num_speculative_tokens": 3}).read()
    assert wanted.drafter == "draft_model" and wanted.num_speculative_tokens == 3
    assert Words(draft_model="m", num_speculative_tokens=3).read() == wanted
    assert Words(drafter="draft_model", draft_model="m", num_speculative_tokens=3).read() == wanted
    assert Words(drafter={"name": "draft_model", "model": "m"}, num_speculative_tokens=3).read() == wanted
    assert Words(drafter={"width": 2}, draft_model="m").read().drafter_options == {"width": 2, "model": "m"}
    assert Words(drafter="pia").read() != Words(drafter="recipe:pia").read()
    assert (
        Words(drafter="pipeinfer", draft_model="m").read() == Words(drafter="recipe:pipeinfer", draft_model="m").read()
    )
    assert Words(drafter="ngram", policy={"num_speculative_tokens": 2}).read().policy_options == {
        "num_speculative_tokens": 2
    }
    one = LLM(model_dir, dtype="float32", draft_model=model_dir, num_speculative_tokens=3)
    config = {"method": "draft_model", "model": str(model_dir), "num_speculative_tokens": 3}
    other = LLM(model_dir, dtype="float32", speculative_config=config)
    assert one.config == other.config
    plain = LLM(model_dir, drafter="none", dtype="float32").generate("abab", GREEDY)
    assert one.generate("abab", GREEDY).token_ids == other.generate("abab", GREEDY).token_ids == plain.token_ids


@pytest.mark.parametrize(
    "words, says",
    [
        (
            {"drafter": "recipe:ngram", "speculative_config": {"method": "ngram"}},
            "drafter='recipe:ngram' is given beside",
        ),
        ({"draft_model": "m", "speculative_config": {"method": "ngram"}}, "draft_model='m' is given beside"),
        ({"drafter": "ngram", "draft_model": "m"}, "draft_model='m' fills a role that drafter 'ngram' does not have"),
        ({"drafter": {"max_ngram": 3}}, "is for a drafter, and none is named"),
        ({"speculative_config": {"method": "ngram"}, "verifier": "greedy"}, "verifier='greedy' is given beside"),
        ({"speculative_config": {"method": "ngram"}, "num_speculative_tokens": 0}, "num_speculative_tokens=0 is given"),
    ],
)
def test_two_meanings_are_refused(words, says):
    with pytest.raises(ConfigError, match=says):
        Words(**words).read()


@pytest.mark.parametrize(
    "word, meant",
    [
        ("draft_modl", "draft_model"),
        ("assistant_model", "draft_model"),
        ("speculate", "num_speculative_tokens"),
        ("num_speculative_token", "num_speculative_tokens"),
        ("draftr", "drafter"),
        ("ngram_prompt_lookup_max", r"drafter=\{'name': ..., 'ngram_prompt_lookup_max'"),
        ("max_ngram", r"an option of a drafter: drafter=\{'name': ..., 'max_ngram'"),
        ("recipe", "takes no recipe='x': drafter= takes a recipe's name"),
        ("drafter_options", "drafter={'name'"),
        ("verifier_options", "verifier={'name'"),
        ("policy_options", "policy={'name'"),
        ("speculative_model", "draft_model"),
        ("method", "here it is called drafter"),
    ],
)
def test_a_wrong_key_names_the_right_one(model_dir, word, meant):
    with pytest.raises(ConfigError, match=meant):
        LLM(model_dir, **{word: "x"})


def test_another_engine_over_the_same_weights_says_what_it_keeps(model_dir):
    plain = LLM(model_dir, drafter="none", dtype="float32")
    with pytest.raises(ConfigError, match=r"'guard' belongs to LLM.*keeps it as it was"):
        plain.with_drafter("ngram", guard=0)
    with pytest.raises(ConfigError, match="takes no 'verifer', did you mean 'verifier'"):
        plain.with_drafter("recipe:ngram", verifer="greedy")
    with pytest.raises(ConfigError, match=r"LLM takes no drafter_options=.*stand beside the name"):
        plain.with_drafter("ngram", drafter_options={"max_ngram": 2})
    both = plain.with_drafter({"name": "ngram", "max_ngram": 2})
    assert both.config["drafter"]["max_ngram"] == 2


@pytest.mark.parametrize("word", ["draft_model", "head", "datastore"])
def test_an_empty_text_is_no_place(word):
    beside = {} if word.endswith("_model") else {"drafter": "auto"}
    with pytest.raises(ConfigError, match=f"{word}='' names nothing: give .*leave it out"):
        Words(**beside, **{word: ""}).read()


def test_rules_that_are_lossy_on_demand_say_so_in_the_config(model_dir):
    llm = LLM(model_dir, dtype="float32", drafter="ngram", verifier="outdraft.testing.accept_all:METHOD")
    assert llm.config["verifier"]["lossless"] is False


def test_a_recipe_of_trees_says_so():
    shapes = {name: read_recipe(name).shape for name in recipe_names()}
    trees = ("specinfer", "rsd", "rsd_s", "mcsd", "sam_decoding", "suffix_decoding", "swift", "eagle2")
    told = {**dict.fromkeys(trees, "tree"), "draft_model": "chain", "bandit_spec": "chain", "none": "nothing"}
    told["auto"] = "tree"  # some of what it may choose from are trees
    assert {name: shapes.get(name, shape) for name, shape in told.items()} == told  # a recipe may have been taken out
    assert set(shapes.values()) == {"nothing", "chain", "tree"}

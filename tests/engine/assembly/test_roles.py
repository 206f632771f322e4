"""What a recipe leaves to its user: roles are filled by what is given, else by the model's companions, else refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from contracts.sides import randomise

from outdraft import LLM, SamplingParams, zoo
from outdraft.core.learner_registry import find_learner
from outdraft.drafters.eagle.net import EagleConfig, EagleNet, save_eagle
from outdraft.engine.naming.recipe import read_recipe, recipe_names
from outdraft.engine.naming.roles import read_companions
from outdraft.engine.naming.words import Words
from outdraft.models.files.load import load_model, save_model
from outdraft.options.errors import ConfigError
from outdraft.weights.digest import digest_weights
from outdraft.weights.known import KNOWN

GREEDY = SamplingParams(max_tokens=16, ignore_eos=True)
SEVERAL = """
[drafter]
name = "several"
[drafter.options]
drafters = ["ngram", { method = "draft_model", model = "@draft_model" }, { method = "eagle", model = "@head?" }]
"""


@pytest.fixture
def target(model_dir: Path, tmp_path: Path) -> Path:
    """A directory of its own with the model's files, so that a test may write companions beside them."""
    own = tmp_path / "target"
    own.mkdir()
    for path in model_dir.iterdir():
        (own / path.name).symlink_to(path)
    return own


@pytest.fixture
def eagle_dir(model_dir: Path, tmp_path: Path) -> Path:
    model = load_model(model_dir)
    shape = {"num_heads": 2, "num_kv_heads": 1, "head_dim": 8, "intermediate_size": 24}
    config = EagleConfig(
        taps=(0, 2),
        hidden_size=model.config.hidden_size,
        vocab_size=model.config.vocab_size,
        max_len=model.config.max_len,
        **shape,
    )
    net = EagleNet(config, model, model.embedding.dtype)
    randomise(net, seed=8)
    save_eagle(net, tmp_path / "eagle")
    return tmp_path / "eagle"


def test_no_recipe_names_a_model():
    """They run on any target: what belongs to one is a role."""
    for name in recipe_names():
        assert "zoo:" not in json.dumps(dict(read_recipe(name).drafter.options)), name


def test_roles_are_filled_in_every_recipe_that_has_them(model_dir, draft_dir, eagle_dir):
    plain = LLM(model_dir, drafter="none", dtype="float32")
    wanted = plain.generate("abababab", GREEDY).token_ids
    by_draft = plain.with_drafter("recipe:draft_model", draft_model=draft_dir)
    assert by_draft.config["drafter"]["model"] == str(draft_dir)
    assert by_draft.config["recipe"]["roles"] == {"draft_model": str(draft_dir)}
    inner = plain.with_drafter("pipeinfer", draft_model=draft_dir)
    assert inner.config["drafter"]["drafter"]["model"] == str(draft_dir)
    by_head = LLM(model_dir, dtype="float32", drafter="recipe:eagle", head=eagle_dir)
    results = [llm.generate("abababab", GREEDY) for llm in (by_draft, by_head, inner)]
    assert all(result.token_ids == wanted for result in results)
    assert all(result.stats.num_draft_tokens > 0 for result in results[:2])


def test_auto_works_on_every_model_and_uses_what_is_filled(model_dir, draft_dir, eagle_dir):
    plain = LLM(model_dir, drafter="none", dtype="float32")

    def arms(**roles: object) -> list[str]:
        llm = plain.with_drafter("auto", **roles)
        assert llm.generate("abababab", GREEDY).token_ids == plain.generate("abababab", GREEDY).token_ids
        return list(llm.config["drafter"]["arms"])

    assert arms() == ["ngram", "suffix"]
    assert arms(draft_model=draft_dir) == ["ngram", "suffix", "draft_model"]
    assert arms(draft_model=draft_dir, head=eagle_dir) == ["ngram", "suffix", "draft_model", "eagle"]


@pytest.mark.parametrize(
    "words, says",
    [
        ({"drafter": "recipe:eagle"}, "recipe 'eagle' leaves the role 'head' to you: give head=.*--head"),
        ({"drafter": "recipe:draft_model"}, "recipe 'draft_model' leaves the role 'draft_model'.*--draft-model"),
        ({"drafter": "recipe:rest"}, "recipe 'rest' leaves the role 'datastore'.*outdraft datastore build"),
        (
            {"drafter": "recipe:ngram", "head": "x"},
            "head='x' fills a role that recipe 'ngram' does not have; it has none",
        ),
        ({"drafter": "recipe:eagle", "draft_model": "x"}, "recipe 'eagle' does not have; it has head"),
        ({"head": "x"}, "head='x' is for a drafter, and none is named"),
        ({"drafter": "eagle", "datastore": "x"}, "drafter 'eagle' does not have; it has head"),
        ({"drafter": {"name": "recipe:draft_model", "model": "y"}, "draft_model": "x"}, "it has none"),
    ],
)
def test_an_open_role_and_one_that_is_not_there_are_refused(words, says):
    with pytest.raises(ConfigError, match=says):
        Words(**words).read()


def test_an_option_may_take_a_roles_place():
    read = Words(drafter={"name": "recipe:draft_model", "model": "mine"}).read()
    assert read.drafter_options["model"] == "mine" and "roles" not in read.recipe


def test_a_models_companions_fill_roles(target, draft_dir, eagle_dir, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    save_model(load_model(draft_dir), elsewhere)
    said = {"draft_model": {"any": "../elsewhere", "universal": "own/name"}, "head": {"eagle": "../eagle"}}
    (target / "companions.json").write_text(json.dumps(said))
    llm = LLM(target, dtype="float32", drafter="recipe:draft_model")
    assert llm.config["drafter"]["model"] == str(elsewhere.resolve())
    given = llm.with_drafter("recipe:draft_model", draft_model=draft_dir)
    assert given.config["drafter"]["model"] == str(draft_dir), "what the user gives goes before"
    assert llm.with_drafter("recipe:eagle").config["recipe"]["roles"] == {"head": str(eagle_dir.resolve())}
    found = read_companions(target)
    assert Words(drafter="uag").read(lambda: found).drafter_options["model"] == "own/name"
    with pytest.raises(ConfigError, match="leaves the role 'head'"):
        llm.with_drafter("recipe:early_exit")


def test_what_lies_beside_a_model_fills_roles(target: Path, draft_dir: Path, eagle_dir: Path, tmp_path: Path):
    assert read_companions(target) == {}
    (target / "draft").symlink_to(draft_dir)
    (target / "head").symlink_to(eagle_dir)
    assert read_companions(target) == {
        "draft_model": {"any": str(target / "draft")},
        "head": {"eagle": str(target / "head")},
    }
    llm = LLM(target, dtype="float32", drafter="auto")
    assert list(llm.config["drafter"]["arms"]) == ["ngram", "suffix", "draft_model", "eagle"]
    (target / "companions.json").write_text(json.dumps({"draft_model": str(draft_dir)}))
    assert read_companions(target)["draft_model"] == {"any": str(draft_dir)}, (
        "what is named goes before what lies there"
    )
    assert read_companions(target)["head"] == {"eagle": str(target / "head")}
    assert read_companions(target / "model.gguf") == {}


def test_a_neighbour_that_names_the_model_is_its_head(target: Path, eagle_dir: Path, tmp_path: Path):
    for name, verifier in (("one", "owner/other"), ("two", f"owner/{target.name}")):
        learner = find_learner("eagle3")
        learner.new(learner.options(), load_model(target), 0).save(tmp_path / name)
        told = json.loads((tmp_path / name / "config.json").read_text())
        told["speculators_config"]["verifier"]["name_or_path"] = verifier
        (tmp_path / name / "config.json").write_text(json.dumps(told))
    assert read_companions(target) == {"head": {"eagle3": str(tmp_path / "two")}}


@pytest.mark.parametrize(
    "text, says",
    [
        ("{", "not readable JSON"),
        ("[]", "one JSON object"),
        ('{"heads": "x"}', "did you mean 'head'"),
        ('{"head": 3}', "must be the text of a path"),
        ('{"head": {"eagle": ""}}', "must be the text of a path"),
    ],
)
def test_companions_that_say_something_else_are_refused(target, text, says):
    (target / "companions.json").write_text(text)
    with pytest.raises(ConfigError, match=says):
        LLM(target, drafter="recipe:eagle")


def test_a_recipe_of_ones_own_has_roles_that_are_checked_when_it_is_read(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(SEVERAL)
    assert read_recipe(path).roles == {"draft_model": True, "head": False}
    filled = Words(drafter=path, draft_model="d").read().drafter_options["drafters"]
    assert filled == ["ngram", {"method": "draft_model", "model": "d"}]
    for wrong, says in (
        (SEVERAL.replace("@head?", "@haed?"), "names no role, did you mean 'head'"),
        (SEVERAL.replace('"ngram", ', "").replace("@draft_model", "@draft_model?"), "drafters"),
        (SEVERAL + '[verifier]\nname = "typical"\n[verifier.options]\nepsilon = "@head"\n', "only a drafter's options"),
    ):
        path.write_text(wrong)
        with pytest.raises(ConfigError, match=says):
            read_recipe(path)


def test_a_role_that_must_be_filled_in_one_place_must_be_filled(tmp_path):
    path = tmp_path / "mine.toml"
    must = '{ method = "draft_model", model = "@draft_model" }'
    may = '{ method = "universal", model = "@draft_model?" }'
    for order in ((must, may), (may, must), (may, may)):
        path.write_text(f'[drafter]\nname = "several"\n[drafter.options]\ndrafters = ["ngram", {", ".join(order)}]\n')
        assert read_recipe(path).roles == {"draft_model": must in order}


def test_a_file_with_a_short_name_has_its_drafts_in_the_zoo(tmp_path, monkeypatch):
    file = tmp_path / KNOWN["smollm2"].file
    file.write_bytes(b"GGUF")
    assert read_companions(file) == {}, "another file of that name"
    monkeypatch.setitem(KNOWN, "smollm2", replace(KNOWN["smollm2"], digest=digest_weights(file)))
    home = zoo.home("smollm2")
    assert read_companions(file) == {
        "draft_model": {"any": str(home / "draft_model")},
        "head": {"eagle3": str(home / "eagle3")},
    }
    assert all((home / name / "model.safetensors").stat().st_size < 12e6 for name in ("draft_model", "eagle3"))

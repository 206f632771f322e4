"""The default drafter: look-ups, and what lies beside the model, on native kernels, behind the guard and on CUDA."""

import json
import logging
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from outdraft import zoo
from outdraft.core.learner_registry import find_learner
from outdraft.core.registry import find, make_options
from outdraft.engine.assembly.memory import Memory
from outdraft.engine.llm import LLM
from outdraft.engine.naming import default
from outdraft.kernels.library import library
from outdraft.models.files.load import load_model, save_model
from outdraft.options.errors import OutdraftError
from outdraft.options.params import SamplingParams
from outdraft.testing.tiny import random_decoder, tiny_config
from outdraft.training.team import join_team

native = pytest.mark.skipif(library() is None, reason="no native kernels here")
PROMPTS = [{"prompt_token_ids": ids} for ids in ([1, 2, 3, 1, 2, 3, 1, 2], [7, 5, 7, 5, 7, 5], [4, 9, 11])]
WAYS = [
    SamplingParams(max_tokens=24, ignore_eos=True),
    SamplingParams(max_tokens=24, ignore_eos=True, temperature=0.9, seed=5),
]


def saved(place, *, layers, vocab=61, dtype=torch.bfloat16):
    save_model(
        random_decoder(
            tiny_config(vocab=vocab, hidden=128, inner=128, layers=layers), dtype=dtype, exact=False, seed=3
        ),
        place,
    )
    return place


@pytest.fixture
def target(tmp_path):
    return saved(tmp_path / "models" / "target", layers=3)


def arms(llm):
    return list(llm.config["drafter"].get("arms", []))


@native
def test_look_ups_where_nothing_else_is_there(target, caplog):
    llm, plain = LLM(target), LLM(target, drafter="none")
    assert llm.config["policy"]["name"] == "auto" and arms(llm) == ["ngram", "suffix"]
    assert plain.config["drafter"]["name"] == "none" and plain.config["policy"]["name"] == "fixed"
    for params in WAYS:
        ours, theirs = llm.generate(PROMPTS, params), plain.generate(PROMPTS, params)
        assert [one.token_ids for one in ours] == [one.token_ids for one in theirs]
    assert not caplog.records
    assert arms(plain.with_speculation()) == ["ngram", "suffix"]


@native
def test_what_lies_beside_the_model_drafts(target, caplog):
    saved(target / "draft", layers=1)
    caplog.set_level(logging.INFO, logger="outdraft.notes")
    llm = LLM(target)
    assert arms(llm) == ["ngram", "suffix", "draft_model"]
    assert any("found draft_model" in record.getMessage() for record in caplog.records)
    texts = [one.generate(PROMPTS, WAYS[1]) for one in (llm, LLM(target, drafter="none"))]
    assert [one.token_ids for one in texts[0]] == [one.token_ids for one in texts[1]]


@native
def test_what_lies_there_and_does_not_fit_is_left_out(target, caplog):
    saved(target / "draft", layers=1, vocab=50)
    llm = LLM(target)
    assert arms(llm) == ["ngram", "suffix"]
    (record,) = caplog.records
    assert "left out" in record.getMessage() and "draft" in record.getMessage() and "50" in record.getMessage()


@native
def test_what_does_not_fit_is_left_out_of_other_weights_too(target):
    """An engine that rounds its weights when memory is short builds its drafters anew."""
    saved(target / "draft", layers=1, vocab=50)
    llm = LLM(target, precision="elastic")
    llm.engine.ladder.read = lambda: Memory(free=1, total=100)
    assert llm.generate(PROMPTS[0], WAYS[0]).variant == "int4-g32-mixed" and arms(llm) == ["ngram", "suffix"]


@native
def test_a_draft_that_is_given_must_fit(target, tmp_path, caplog):
    """And what lies beside the model is not blamed for it."""
    wrong = saved(tmp_path / "wrong", layers=1, vocab=50)
    saved(target / "draft", layers=1)
    with pytest.raises(OutdraftError, match="nothing"):
        LLM(target, head=tmp_path / "nothing")
    assert not [record for record in caplog.records if "left out" in record.getMessage()]
    with pytest.raises(OutdraftError, match="50"):
        LLM(target, draft_model=wrong)


def make_exit_head(place: Path) -> None:
    """An exit head of the zoo's target that has learned nothing."""
    method, target = find_learner("early_exit"), load_model(zoo.path("target"))
    method.new(method.options(), target, 0).save(place)


@native
def test_a_head_that_is_given_takes_the_place_of_a_draft_model_that_is_found(tmp_path):
    home = tmp_path / "target"
    shutil.copytree(zoo.path("target"), home, ignore=shutil.ignore_patterns("companions.json"))
    (home / "companions.json").write_text(json.dumps({"draft_model": str(zoo.path("draft"))}))
    assert arms(LLM(home)) == ["ngram", "suffix", "draft_model"]
    assert arms(LLM(home, head="zoo:eagle3")) == ["ngram", "suffix", "eagle3"]


@native
def test_a_head_that_no_width_is_named_for_drafts():
    llm = LLM("zoo:target", drafter="eagle", policy="fixed", num_speculative_tokens=3)
    stats = llm.generate("It was late", SamplingParams(max_tokens=24)).stats
    shape = 16 if llm.config["kernels"] == "amx" else 3
    assert stats.num_accepted_tokens > 0 and max(count for count, _ in stats.per_step) == shape


@native
def test_a_head_brings_its_own_drafter():
    """Of the zoo: what is given as a head says itself whose it is."""
    assert arms(LLM("zoo:target"))[2:] == ["eagle"]  # and the draft model beside it is left alone
    given = LLM("zoo:target", head="zoo:eagle3")
    assert arms(given)[2:] == ["eagle3"]


@native
def test_a_head_of_any_kind_that_lies_there_is_used(tmp_path):
    home = tmp_path / "target"
    shutil.copytree(zoo.path("target"), home, ignore=shutil.ignore_patterns("companions.json"))
    make_exit_head(home / "head")
    assert arms(LLM(home)) == ["ngram", "suffix", "early_exit"]


@native
@pytest.mark.parametrize(
    "words, drafter, policy",
    [
        ({"drafter": "none"}, "none", "fixed"),
        ({"num_speculative_tokens": 0}, "none", "fixed"),
        ({"verifier": "sequential"}, "none", "fixed"),
        ({"drafter": "recipe:none"}, "none", "fixed"),
        ({"drafter": "ngram"}, "ngram", "auto"),
        ({"num_speculative_tokens": 3}, "several", "auto"),
        ({"policy": "bandit"}, "several", "bandit"),
        ({"exact": False}, "several", "auto"),
        ({"precision": "elastic"}, "several", "auto"),
    ],
)
def test_what_is_said_is_done(target, words, drafter, policy):
    config = LLM(target, **words).config
    assert (config["drafter"]["name"], config["policy"]["name"]) == (drafter, policy)


@pytest.fixture
def unlogged():
    default._tell.cache_clear()
    yield
    default._tell.cache_clear()


def test_plain_where_pytorch_computes_with_one_hint(target, caplog, unlogged):
    caplog.set_level(logging.INFO, logger="outdraft.notes")
    for _ in range(2):
        llm = LLM(target, dtype="float32")
        assert llm.config["drafter"]["name"] == "none"
    (record,) = caplog.records
    assert "float32 on cpu" in record.getMessage() and record.name == "outdraft.notes"
    assert record.levelno == logging.INFO
    assert LLM(target, dtype="float32", drafter="ngram").config["drafter"]["name"] == "ngram"


def test_the_guard_speculates_there_too(target, caplog, unlogged):
    llm = LLM(target, dtype="float32", exact=False)
    assert llm.config["guard"] > 0 and arms(llm) == ["ngram", "suffix"] and not caplog.records
    assert LLM(target, dtype="float32", exact=False, guard=0).config["drafter"]["name"] == "none"


@pytest.mark.parametrize(
    ("dtype", "guard", "told"), [("bfloat16", None, 1), ("bfloat16", 0.25, 0), ("float32", None, 0)]
)
def test_cuda_speculates_and_says_where_rounding_may_show(dtype, guard, told, caplog, unlogged):
    """The network stands for one on a GPU, of which the choice reads these four facts."""
    caplog.set_level(logging.INFO, logger="outdraft.notes")
    network = SimpleNamespace(
        kernels="pytorch", exact=False, dtype=getattr(torch, dtype), device=torch.device("cuda", 0)
    )
    chosen = SimpleNamespace(instead=("without what lies beside", "plain"))
    assert default.fitting(network, chosen, guard) is chosen
    assert [("guard=" in one.getMessage(), one.levelno) for one in caplog.records] == [(True, logging.INFO)] * told


def test_a_device_is_chosen_before_the_model_is_looked_for(target, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for name in ("auto", "cpu:0"):
        config = LLM(target, device=name, drafter="none", dtype="float32").config
        assert config["device"] == "cpu" and config["exact"]
    with pytest.raises(OutdraftError, match="device='mps'"):
        LLM("nowhere/at-all", device="mps")
    with join_team("auto") as team:
        assert team.size == 1


@native
def test_a_request_may_say_no(target):
    result = LLM(target).generate(PROMPTS[0], WAYS[0], num_speculative_tokens=0)
    assert result.stats.num_draft_tokens == 0


def test_the_default_is_the_recipe():
    options = make_options(find("drafter", "several"), {"drafters": ["ngram"]})
    assert find("drafter", "several").shape_of(options) == "chain" and default.RECIPE == "auto"


@pytest.mark.parametrize(
    "words, where",
    [
        ({"drafter": "draft_model"}, ("model",)),
        ({"speculative_config": {"method": "draft_model"}}, ("model",)),
        ({"drafter": "pearl"}, ("drafter", "model")),
        ({"drafter": {"name": "pearl", "drafter": {"method": "draft_model", "width": 2}}}, ("drafter", "model")),
        ({"drafter": "cascade"}, ("models", 0)),
    ],
)
def test_a_drafter_without_its_model_takes_what_lies_there(target, caplog, words, where):
    saved(target / "draft", layers=1)
    caplog.set_level(logging.INFO, logger="outdraft.notes")
    taken = LLM(target, **words).config["drafter"]
    for key in where:
        taken = taken[key]
    assert taken == str(target / "draft")
    assert f"found draft_model beside the model: {target / 'draft'}" in caplog.text


def test_a_model_that_is_given_is_not_replaced(target, tmp_path, caplog):
    saved(target / "draft", layers=1)
    mine = str(saved(tmp_path / "mine", layers=1))
    caplog.set_level(logging.INFO, logger="outdraft.notes")
    nested = {"drafter": {"method": "draft_model", "model": mine}}
    given = LLM(target, drafter={"name": "draft_model", "model": mine})
    inside = given.with_speculation(drafter={"name": "pearl", **nested})
    for llm in (given, given.with_speculation(draft_model=mine), inside):
        options = llm.config["drafter"]
        assert options.get("drafter", options)["model"] == mine
    given.with_speculation(drafter="ngram")
    assert not caplog.records


def test_a_named_drafter_takes_a_head_of_its_own_kind(tmp_path):
    """And its own default, or its own refusal, where the head is another drafter's."""
    home = tmp_path / "target"
    shutil.copytree(zoo.path("target"), home, ignore=shutil.ignore_patterns("companions.json"))
    make_exit_head(home / "head")
    llm = LLM(home, drafter="early_exit")
    assert llm.config["drafter"]["model"] == str(home / "head")
    assert llm.with_speculation(drafter="eagle").config["drafter"]["model"] == "zoo:eagle"
    with pytest.raises(OutdraftError, match="model='' to draft without a head"):
        llm.with_speculation(drafter={"name": "early_exit", "exit_layer": 1})
    bare = llm.with_speculation(drafter={"name": "early_exit", "exit_layer": 1, "model": ""})
    assert bare.config["drafter"]["model"] == ""

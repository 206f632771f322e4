"""Models by name with steps: the distribution stays, peers get what was not rounded, and nonsense is refused."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from outdraft import LLM, SamplingParams
from outdraft.bench.drafts import make_draft
from outdraft.bench.lineup import Rival
from outdraft.bench.made import make_model, read_size
from outdraft.bench.shelf import Shelf
from outdraft.bench.subject import load_subject
from outdraft.engine.naming.roles import read_companions
from outdraft.models.files.load import load_model, save_model
from outdraft.options.errors import ConfigError
from outdraft.testing.tiny import tiny_model


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    save_model(tiny_model("llama", seed=5, dtype=torch.float32), tmp_path / "tiny")
    (tmp_path / "tiny" / "more.json").write_text("{}")
    return tmp_path / "tiny"


def test_sizes():
    assert read_size("4x12") == (4, 12)
    with pytest.raises(ConfigError, match="WIDTHxDEPTH"):
        read_size("4")
    with pytest.raises(ConfigError, match="did you mean 'int8'"):
        read_size("in8")


def test_the_model_it_was_made_from_drafts_for_it_and_all_is_accepted(tiny: Path, tmp_path: Path):
    made = make_model(f"{tiny}@2x5", Shelf(tmp_path))
    assert made.path == made.original and load_model(made.path).config.num_layers == 5
    big = LLM(made.path, drafter={"name": "draft_model", "model": str(tiny)}, num_speculative_tokens=3)
    done = big.generate({"prompt_token_ids": [1, 2, 3]}, SamplingParams(max_tokens=24, ignore_eos=True))
    assert done.stats.num_rejections == 0 and done.stats.num_accepted_tokens >= 17
    small = LLM(tiny).generate({"prompt_token_ids": [1, 2, 3]}, SamplingParams(max_tokens=24, ignore_eos=True))
    assert list(done.token_ids) == list(small.token_ids)


def test_a_rounded_one_remembers_what_it_was(tiny: Path, tmp_path: Path):
    shelf = Shelf(tmp_path)
    subject = load_subject(f"{tiny}@2x3@int8", shelf)
    assert subject.plain.config["variant"] == "int8" and subject.told["name"] == "tiny@2x3@int8"
    assert subject.original == make_model(f"{tiny}@2x3", shelf).path
    assert (subject.original / "more.json").exists()
    whole = load_subject(f"{tiny}@int8", shelf, inflated="2x3")
    assert whole.told["weights"] == subject.told["weights"] and whole.told["inflate"] == "2x3"
    plain = load_subject(str(tiny), shelf, inflated="2x3")
    assert plain.told["parameters"] == subject.told["parameters"], "rounded weights are counted as numbers"
    with pytest.raises(ConfigError, match="comes after the rounding"):
        make_model(f"{tiny}@int8@2x3", shelf)


def test_companions_of_a_made_model_exist(tiny: Path, tmp_path: Path):
    """Relative paths would point beside the shelf. A head belongs to one width, so an inflated model has none."""
    shelf = Shelf(tmp_path / "shelf")
    before = make_model(f"{tiny}@2x3", shelf).path
    assert not (before / "companions.json").exists()
    for name in ("draft", "head"):
        (tmp_path / name).mkdir()
    named = {"draft_model": {"any": "../draft", "universal": "some/name"}, "head": {"eagle": "../head"}}
    (tiny / "companions.json").write_text(json.dumps(named))
    drafts = {"any": str(tmp_path / "draft"), "universal": "some/name"}
    bigger, rounded = make_model(f"{tiny}@2x3", shelf).path, make_model(f"{tiny}@int8", shelf).path
    assert bigger != before, "one that was made of other companions is not this one"
    assert read_companions(bigger) == {"draft_model": drafts}
    assert read_companions(rounded) == {"draft_model": drafts, "head": {"eagle": str(tmp_path / "head")}}
    assert read_companions(make_model(f"{tiny}@2x3@int8", shelf).path) == {"draft_model": drafts}


def test_a_drafter_without_a_model_takes_what_lies_beside_the_one_that_was_inflated(tiny: Path, tmp_path: Path):
    shutil.copytree(tiny, tmp_path / "model")
    shutil.copytree(tiny, tmp_path / "model/draft")
    made = make_draft(Rival(name="draft_model"), Shelf(tmp_path / "shelf"), f"{tmp_path / 'model'}@2x3")
    assert made.options == {"model": str(tmp_path / "model/draft")}


def test_drafts_may_have_steps(tiny: Path, tmp_path: Path):
    shelf = Shelf(tmp_path)
    rival = Rival(name="draft_model", options={"model": f"{tiny}@2x3"})
    assert make_draft(rival, shelf, str(tiny)).options == {"model": str(make_model(f"{tiny}@2x3", shelf).path)}
    as_it_is = Rival(name="draft_model", options={"model": str(tiny)})
    assert make_draft(as_it_is, shelf, str(tiny)) == as_it_is
    nested = Rival(name="several", options={"drafters": ["ngram", {"method": "draft_model", "model": f"{tiny}@2x3"}]})
    made = make_draft(nested, shelf, str(tiny)).options["drafters"]
    assert made == ["ngram", {"method": "draft_model", "model": str(make_model(f"{tiny}@2x3", shelf).path)}]

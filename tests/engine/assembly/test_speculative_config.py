"""vLLM's dictionary: a drafter by its name, by a peer's name for it, or by what lies in the directory of its model."""

from pathlib import Path

import pytest
import torch

from outdraft.core.learner_registry import find_learner, learner_names
from outdraft.engine.naming.speculative_config import from_mapping
from outdraft.options.errors import ConfigError
from outdraft.testing.tiny import random_decoder, tiny_config

PUBLISHED = Path(__file__).parents[2] / "drafters/published"


@pytest.mark.parametrize("kind", learner_names())
def test_a_directory_says_what_drafts_with_it(kind: str, tmp_path: Path):
    method, target = find_learner(kind), random_decoder(tiny_config(layers=6), dtype=torch.float32)
    method.new(method.options(), target, 0).save(tmp_path)
    found = from_mapping({"model": str(tmp_path), "num_speculative_tokens": 3})
    assert found.drafter == (method.drafter or kind) or method.model_type is None  # one that trains another's network
    reader = find_learner(found.drafter)
    reader.load(reader.options(), target, tmp_path)
    assert found.drafter_options == {"model": str(tmp_path)} and found.num_speculative_tokens == 3


@pytest.mark.parametrize("kind", ["eagle1", "eagle3"])
def test_a_peers_word_finds_the_one_that_lies_there(kind: str, tmp_path: Path):
    method = find_learner(kind)
    method.new(method.options(), random_decoder(tiny_config(layers=6), dtype=torch.float32), 0).save(tmp_path)
    assert from_mapping({"method": "eagle", "model": str(tmp_path)}).drafter == kind
    assert from_mapping({"method": kind, "model": str(tmp_path)}).drafter == kind


def test_published_heads_need_no_method():
    assert from_mapping({"model": str(PUBLISHED / "medusa")}).drafter == "medusa"
    assert from_mapping({"model": str(PUBLISHED / "hydra_prefix")}).drafter == "hydra"


def test_the_zoo_is_known_by_its_files():
    assert from_mapping({"model": "zoo:draft"}).drafter == "draft_model"
    assert from_mapping({"method": "eagle", "model": "zoo:eagle"}).drafter == "eagle"
    assert from_mapping({"method": "eagle"}).drafter == "eagle"


def test_what_says_nothing_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match="names no 'method'"):
        from_mapping({"num_speculative_tokens": 3})
    for model in (str(tmp_path), 3):
        with pytest.raises(ConfigError, match="does not say which drafter it is for: name the 'method'"):
            from_mapping({"model": model})

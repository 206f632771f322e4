"""From `LLM()` to a running loop: at most 11 modules are entered, 16 times one comes back, and no file is long.

Where no argument names a drafter the default is found first, which is a walk of its own.
"""

import pytest
import torch
from engine.assembly.walk import ROOT, record

from outdraft.models.files.load import save_model
from outdraft.testing.tiny import random_decoder, tiny_config


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tiny")
    save_model(random_decoder(tiny_config(), dtype=torch.float32), directory)
    record(str(directory))  # what is imported late
    return str(directory)


def test_the_walk_is_short(model):
    walk = record(model, drafter="none")
    assert len(walk.modules) <= 11 and walk.num_returns <= 16, walk.crossings
    assert {"engine.llm", "engine.assembly.assemble", "engine.callers.thread", "engine.loop"} <= set(walk.modules)


def test_with_the_first_request_it_is_not_long_either(model):
    walk = record(model, whole=True, drafter="none")
    assert len(walk.modules) <= 14 and walk.num_returns <= 25, walk.crossings
    for module in walk.modules:
        path = ROOT / f"{module.replace('.', '/')}.py"
        assert len(path.read_text().splitlines()) <= 320, path


def test_the_default_is_found_on_a_short_walk(model):
    walk = record(model)
    assert len(walk.modules) <= 14 and walk.num_returns <= 37, walk.crossings
    assert "engine.naming.default" in walk.modules


def test_the_count_sees_what_it_leaves_out(model):
    """Were nothing a leaf, every module that loads a model would count."""
    assert record(model, strict=True).num_returns > 100

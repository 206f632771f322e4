"""What ships: it loads, it fits together, it is small, and it has learned something."""

import json
import math

import pytest
import torch
from tokenizers import Tokenizer

from lab.zoo.pretrain import NextToken
from outdraft import zoo
from outdraft.core.learner_registry import find_learner
from outdraft.models.files.foreign_heads import recognise
from outdraft.models.files.load import load_model
from outdraft.options.errors import ModelLoadError
from tests.training.toys import draft_objective, rates

ALWAYS = {"draft", "eagle", "foreign_draft", "target"}
# Ours, written for this test: in no corpus.
TEXT = """The old lighthouse keeper climbed the stairs every evening, and every evening he counted them. There were one
hundred and twelve. His dog waited at the bottom, because she did not like the wind that blew through the broken window.

def count_words(text):
    counts = {}
    for word in text.split():
        counts[word] = counts.get(word, 0) + 1
    return counts
"""


@pytest.fixture(scope="module")
def target():
    return load_model(zoo.path("target"), torch.float32)


@pytest.fixture(scope="module")
def rows():
    return torch.tensor([[0, *Tokenizer.from_file(str(zoo.path("target") / "tokenizer.json")).encode(TEXT).ids]])


def test_the_zoo_is_complete_and_small():
    assert set(zoo.names()) >= ALWAYS
    wheel = zoo.path("target").parent
    assert sum(p.stat().st_size for p in wheel.glob("*/*") if p.is_file()) < 12 * 2**20
    with pytest.raises(ModelLoadError, match="did you mean 'target'"):
        zoo.path("targt")


def test_every_further_model_loads_and_is_found_by_its_name(target):
    companions = json.loads((zoo.path("target") / "companions.json").read_text())
    named = {place.removeprefix("../") for role in companions.values() for place in role.values()}
    for name in set(zoo.names()) - ALWAYS:
        assert name in named, f"{name} is not in companions.json"
        found = recognise(zoo.path(name))
        assert found is not None
        method = find_learner(found[0])
        assert method.load(method.options(), target, zoo.path(name)).module is not None


def test_target_and_draft_share_one_vocabulary():
    files = [(zoo.path(name) / "tokenizer.json").read_bytes() for name in ("target", "draft")]
    assert files[0] == files[1]


def test_draft_and_target_predict_better_than_chance(target, rows):
    draft = load_model(zoo.path("draft"), torch.float32)
    with torch.no_grad():
        nats = [float(NextToken(model).loss(rows)) for model in (draft, target)]
    assert nats[0] < 0.75 * math.log(4096) and nats[1] < nats[0]


@pytest.mark.parametrize(
    ("kind", "name", "least"), [("draft_model", "draft", 0.4), ("eagle", "eagle", 0.4), ("eagle3", "eagle3", 0.3)]
)
def test_every_drafter_is_accepted_often(target, rows, kind, name, least):
    method = find_learner(kind)
    trained, fresh = method.load(method.options(), target, zoo.path(name)), method.new(method.options(), target, 0)
    found, before = (rates(draft_objective(one, target), rows)[1] for one in (trained, fresh))
    assert found > least
    assert found > before or kind == "draft_model", "a draft that is cut from the target knows something already"

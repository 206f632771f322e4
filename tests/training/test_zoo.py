"""What ships: it loads, it fits together, it is small, and it has learned something."""

import math

import pytest
import torch
from tokenizers import Tokenizer

from outdraft import zoo
from outdraft.core.errors import ModelLoadError
from outdraft.drafters.eagle.net import load_eagle
from outdraft.drafters.early_exit.net import load_exit_head
from outdraft.models.load import load_model
from outdraft.training.compilable import make_compilable
from outdraft.training.distill import Distill, DistillOptions
from outdraft.training.eagle import Eagle, EagleTraining
from outdraft.training.early_exit import EarlyExit

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
    target = load_model(zoo.path("target"), torch.float32)
    make_compilable(target, 1024, torch.float32)
    return target


@pytest.fixture(scope="module")
def rows():
    return torch.tensor([[0, *Tokenizer.from_file(str(zoo.path("target") / "tokenizer.json")).encode(TEXT).ids]])


def test_the_zoo_is_complete_and_small():
    assert zoo.names() == ["draft", "eagle", "early_exit", "foreign_draft", "target"]
    files = [p for name in zoo.names() for p in zoo.path(name).iterdir()]
    assert sum(p.stat().st_size for p in files) < 64 * 2**20
    with pytest.raises(ModelLoadError, match="did you mean 'target'"):
        zoo.path("targt")


def test_target_and_draft_share_one_vocabulary():
    files = [(zoo.path(name) / "tokenizer.json").read_bytes() for name in ("target", "draft")]
    assert files[0] == files[1]


def test_target_and_draft_predict_better_than_chance(target, rows):
    draft = load_model(zoo.path("draft"), torch.float32)
    make_compilable(draft, 1024, torch.float32)
    loss, _, own = Distill(draft, target, DistillOptions()).loss(rows).tolist()
    assert own < 0.75 * math.log(4096)
    assert loss < 2.0


def test_every_drafter_is_accepted_often(target, rows):
    draft = load_model(zoo.path("draft"), torch.float32)
    make_compilable(draft, 1024, torch.float32)
    assert Distill(draft, target, DistillOptions()).loss(rows)[1] > 0.4
    exit_rates = EarlyExit(load_exit_head(zoo.path("early_exit")), target).loss(rows)
    assert exit_rates[1] > 0.3 and exit_rates[1] > exit_rates[2]
    net = load_eagle(zoo.path("eagle"), target, torch.float32)
    options = EagleTraining(taps=net.config.taps, num_heads=6, num_kv_heads=2, head_dim=64, intermediate_size=1024)
    assert Eagle(net, target, options).loss(rows)[1] > 0.4

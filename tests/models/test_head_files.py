"""A head of ours on disk: what is written is read, and a file that is not whole is refused."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn

from outdraft.models.files.head_files import load_head, save_head
from outdraft.options.errors import ModelLoadError


@dataclass(frozen=True)
class Sizes:
    width: int = 4


def make(config, device):
    return nn.Linear(config.width, 2, device=device)


def load(place):
    return load_head(place, Sizes, make, model_type="a_head", what="head", beside=("counts",))


def test_what_is_written_is_read(tmp_path):
    net = make(Sizes(), None)
    save_head(net, Sizes(), tmp_path, model_type="a_head", beside={"counts": torch.ones(3)})
    read = load(tmp_path)
    assert all(map(torch.equal, read.parameters(), net.parameters())) and not read.training


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda net: net.bias.data.fill_(float("nan")), ("NaN", "bias")),
        (lambda net: net.register_parameter("bias", nn.Parameter(torch.ones(3))), ("'bias'", "(3,)", "(2,)")),
        (lambda net: net.register_parameter("bias", None), ("'bias'", "is missing")),
    ],
)
def test_a_file_that_is_not_whole_is_refused(tmp_path, spoil, words):
    spoil(net := make(Sizes(), None))
    save_head(net, Sizes(), tmp_path, model_type="a_head")
    with pytest.raises(ModelLoadError) as error:
        load(tmp_path)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_a_tensor_that_nothing_explains_is_refused(tmp_path):
    """As of heads of other projects: config.json may say fewer parts than there are."""
    save_head(make(Sizes(), None), Sizes(), tmp_path, model_type="a_head", beside={"more.weight": torch.ones(3)})
    with pytest.raises(ModelLoadError, match=r"1 tensors are none that outdraft knows \(more.weight\)"):
        load(tmp_path)

"""Names of a layer's tensors do not say which part holds them."""

import copy

import pytest
import torch
from torch import nn

from outdraft.models.networks.block import MLP, Attention, Block
from outdraft.nn.linear import Linear
from outdraft.testing.tiny import tiny_model

NAMES = ["attn_norm.weight", "qkv.weight", "out.weight", "mlp_norm.weight", "up.weight", "down.weight"]


@pytest.fixture
def model():
    return tiny_model(dtype=torch.float32, exact=False)


def test_names_are_flat_and_in_the_order_of_a_pass(model):
    assert [name for name, _ in model.layers[0].named_parameters()] == NAMES
    inside = [f"layers.{i}.{name}" for i in range(2) for name in NAMES]
    assert [name for name, _ in model.named_parameters()] == [
        "embedding",
        *inside,
        "final_norm.weight",
        "lm_head.weight",
    ]
    modules = dict(model.named_modules())
    assert modules["layers.1.qkv"] is model.layers[1].mixer.qkv is model.get_submodule("layers.1.qkv")
    assert isinstance(modules["layers.1.mixer"], Attention) and isinstance(modules["layers.1.feed_forward"], MLP)
    assert isinstance(modules["layers.1"], Block)


def test_a_map_that_is_set_is_the_parts(model):
    layer, new = model.layers[0], Linear(32, 4, False, torch.float32, torch.device("cpu"))
    layer.up = new
    assert layer.feed_forward.up is new and "up" not in layer._modules
    layer.bias = new
    assert layer._modules["bias"] is new
    with pytest.raises(AttributeError, match="gate"):
        _ = layer.gate


def test_a_state_dict_has_the_same_names_and_comes_back(model):
    saved = model.state_dict()
    assert list(saved) == [name for name, _ in model.named_parameters()]
    other = tiny_model(dtype=torch.float32, seed=5, exact=False)
    other.load_state_dict(saved)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
    kept = dict(saved)
    with pytest.raises(RuntimeError, match=r"Unexpected.*layers.0.qvk"):
        other.load_state_dict({**kept, "layers.0.qvk.weight": kept.pop("layers.0.qkv.weight")})
    alone = model.layers[1].state_dict()
    assert list(alone) == NAMES
    other.layers[0].load_state_dict(alone)
    assert torch.equal(other.layers[0].mixer.qkv.weight, model.layers[1].mixer.qkv.weight)


def test_a_copy_is_a_copy(model):
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.layers[0].qkv.weight.zero_()
    assert float(twin.layers[0].mixer.qkv.weight.abs().max()) == 0
    assert float(model.layers[0].qkv.weight.abs().max()) > 0
    assert isinstance(twin.layers[0].mixer, nn.Module)

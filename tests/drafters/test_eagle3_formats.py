"""EAGLE-3 directories as others want them: the same network in each, taps in both conventions, the target's name."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from outdraft.core.learner_registry import find_learner
from outdraft.drafters.eagle3.formats import FORMATS
from outdraft.drafters.eagle3.learn import Eagle3Learning
from outdraft.drafters.shared.features.fused.net import FusedNet
from outdraft.models.networks.base import Decoder
from outdraft.options.errors import CapabilityError
from outdraft.testing.tiny import random_decoder, tiny_config
from outdraft.weights.safetensors import read_tensors

SPECULATORS, ORIGINAL = FORMATS


@pytest.fixture
def target() -> Decoder:
    return random_decoder(tiny_config(layers=6), dtype=torch.float32)


def network(target: Decoder, **options: object) -> FusedNet:
    module = find_learner("eagle3").new(Eagle3Learning(taps=(1, 3, 4), **options), target, 3).module
    assert isinstance(module, FusedNet)
    return module


def test_both_name_the_same_taps_each_in_its_convention(target: Decoder, tmp_path: Path):
    net = network(target, draft_vocab_size=20, fc_norm=True, norm_output=True)
    SPECULATORS.write(net, target, "a/target", tmp_path / "s")
    ORIGINAL.write(net, target, "a/target", tmp_path / "o")
    key = "eagle_aux_hidden_state_layer_ids"
    for place in ("s", "o"):
        told = json.loads((tmp_path / place / "config.json").read_text())
        assert told[key] == [1, 3, 4] and told["eagle_config"][key] == [0, 2, 3]
        assert told["draft_vocab_size"] == 20 and told["fc_norm"] and told["norm_output"]
        assert told["norm_before_residual"] is False and told["norm_before_fc"] is False
    told = json.loads((tmp_path / "s/config.json").read_text())
    verifier = {"name_or_path": "a/target", "architectures": ["LlamaForCausalLM"]}
    assert told["speculators_config"]["verifier"] == verifier
    names = set(read_tensors(tmp_path / "o/model.safetensors"))
    assert "midlayer.self_attn.q_proj.weight" in names and not any(name.startswith("layers.") for name in names)
    assert {"fc.weight", "norm.weight", "lm_head.weight", "d2t", "t2d"} < names


def test_each_is_recognised_as_itself_alone_and_read_as_the_same_network(target: Decoder, tmp_path: Path):
    net = network(target)
    for one in FORMATS:
        one.write(net, target, "t", tmp_path / one.name)
        assert [other.name for other in FORMATS if other.matches(tmp_path / one.name)] == [one.name]
        read = one.read(tmp_path / one.name, target, None)
        assert replace(read.config, layers=net.config.layers) == net.config  # weights tell their shapes
        assert all(torch.equal(a, b) for a, b in zip(net.parameters(), read.parameters(), strict=True))


def test_what_the_original_cannot_say_is_refused_before_anything_is_written(target: Decoder, tmp_path: Path):
    with pytest.raises(CapabilityError, match="one layer, and this network 2"):
        ORIGINAL.write(network(target, num_layers=2), target, "t", tmp_path / "o")
    assert not (tmp_path / "o").exists()

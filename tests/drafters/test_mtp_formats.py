"""MTP layers in both spellings: the names of the released package, and the same network in each."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from outdraft.core.errors import CapabilityError
from outdraft.core.registry import find_learner
from outdraft.drafters.mtp.formats import FORMATS
from outdraft.drafters.mtp.net import MtpNet
from outdraft.models.base import Decoder
from outdraft.testing.tiny import random_decoder, tiny_config
from outdraft.weights.safetensors import read_tensors

PEERS = Path(__file__).parents[1] / "peers/mtp"
NATIVE, SPECULATORS = FORMATS
NAMES = {  # of the released package (speculators 0.9.0)
    "final_layernorm", "hidden_layernorm", "input_layernorm", "input_proj", "mlp.down_proj", "mlp.gate_proj",
    "mlp.up_proj", "post_attention_layernorm", "self_attn.k_norm", "self_attn.k_proj", "self_attn.o_proj",
    "self_attn.q_norm", "self_attn.q_proj", "self_attn.v_proj", "token_layernorm",
}  # fmt: skip


@pytest.fixture
def target() -> Decoder:
    return random_decoder(tiny_config(layers=2, hidden=16, vocab=24), dtype=torch.float32)


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """The peers' layer, without the numbers beside it."""
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "published").mkdir(exist_ok=True)
        shutil.copy(PEERS / name, tmp_path / "published")
    return tmp_path / "published"


def test_speculators_names_are_the_packages(target: Decoder, published: Path, tmp_path: Path):
    net = NATIVE.read(published, target, None)
    SPECULATORS.write(net, target, "a/target", tmp_path / "s")
    assert set(read_tensors(tmp_path / "s/model.safetensors")) == {f"mtp_layers.0.{name}.weight" for name in NAMES}
    told = json.loads((tmp_path / "s/config.json").read_text())
    assert told["speculators_config"]["verifier"]["name_or_path"] == "a/target"
    assert told["transformer_layer_config"]["model_type"] == "qwen3"
    assert [one.name for one in FORMATS if one.matches(tmp_path / "s")] == ["speculators"]
    read = SPECULATORS.read(tmp_path / "s", target, None)
    for name, parameter in net.named_parameters():
        assert torch.equal(parameter, read.get_parameter(name)), name


def test_two_layers_have_no_names_there(target: Decoder, tmp_path: Path):
    from dataclasses import replace

    method = find_learner("mtp")
    net = method.new(method.options(), target, 0).module
    assert isinstance(net, MtpNet)
    two = MtpNet(replace(net.config, layers=replace(net.config.layers, num_layers=2)), target)
    with pytest.raises(CapabilityError, match="one layer, and this network 2"):
        SPECULATORS.write(two, target, "t", tmp_path / "out")
    assert not (tmp_path / "out").exists()

"""Hydra's heads as their authors write them: the fixtures come from tests/peers/hydra_by_its_authors.py."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from outdraft.drafters.hydra import formats
from outdraft.drafters.hydra.net import HydraConfig, HydraNet
from outdraft.models.networks.base import Decoder
from outdraft.nn.context import CausalContext
from outdraft.options.errors import CapabilityError, ModelLoadError
from outdraft.testing.tiny import random_decoder, tiny_config
from outdraft.weights.safetensors import read_tensors

PUBLISHED = Path(__file__).parent / "published"
AUTHORS, OURS = formats.FORMATS
KINDS = ["hydra", "hydra_prefix"]


@pytest.fixture
def target() -> Decoder:
    return random_decoder(tiny_config(layers=2, hidden=16, heads=2, kv_heads=1, vocab=23), dtype=torch.float32)


@pytest.mark.parametrize("kind", KINDS)
def test_heads_say_what_the_authors_module_said(kind: str, target: Decoder):
    net, said = formats.load(PUBLISHED / kind, target, None), read_tensors(PUBLISHED / kind / "said.safetensors")
    states, count = said["states"], len(said["ids"])
    if kind == "hydra_prefix":
        assert net.stem is not None
        states = net.stem(states, None, torch.arange(count), CausalContext(1, count))
    embeds = said["table"][said["ids"]]
    for head, theirs in enumerate(said["logits"]):
        rows = torch.arange(count - head - 1)  # behind the last token theirs begin again with the first
        ours = net.logits(net.states(states[rows], head, [embeds[rows + i + 1] for i in range(head + 1)]), head)
        assert torch.allclose(ours, theirs[rows], atol=2e-5), head


@pytest.mark.parametrize("kind", KINDS)
def test_both_layouts_keep_every_bit(kind: str, target: Decoder, tmp_path: Path):
    OURS.write(formats.load(PUBLISHED / kind, target, None), target, "t", tmp_path / "ours")
    AUTHORS.write(formats.load(tmp_path / "ours", target, None), target, "t", tmp_path / "theirs")
    assert AUTHORS.matches(tmp_path / "theirs")
    pickled = torch.load(PUBLISHED / kind / "hydra_lm_head.pt", weights_only=True)
    for table in ("prefix_embeding_layer.embed_tokens.weight", "input_embed_fn.weight"):
        pickled.pop(table, None)
    written = read_tensors(tmp_path / "theirs/hydra_lm_head.safetensors")
    assert written.keys() == pickled.keys()
    assert all(torch.equal(written[name], pickled[name]) for name in pickled)
    again = formats.load(tmp_path / "theirs", target, None)
    assert again.config == formats.load(PUBLISHED / kind, target, None).config


def test_plain_heads_are_written_with_a_bypass_that_changes_nothing(target: Decoder, tmp_path: Path):
    config = HydraConfig(tap=2, hidden_size=16, vocab_size=23, num_heads=2, num_layers=2)
    net = HydraNet(config)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    AUTHORS.write(net, target, "t", tmp_path)
    assert "hydra_mlp.1.0.res_connection.weight" in read_tensors(tmp_path / "hydra_lm_head.safetensors")
    read = formats.load(tmp_path, target, None)
    assert read.config == config
    h, e = torch.randn(4, 16), torch.randn(2, 4, 16)
    for head in range(2):
        ours, theirs = (one.logits(one.states(h, head, list(e[: head + 1])), head) for one in (net, read))
        assert torch.equal(ours, theirs)


def test_what_the_layout_cannot_say_is_refused(target: Decoder, tmp_path: Path):
    sizes = {"stem_heads": 2, "stem_kv_heads": 1, "stem_head_dim": 8, "stem_inner": 24}
    plain = HydraConfig(tap=2, hidden_size=16, vocab_size=23, num_heads=2, num_stem_layers=1, **sizes)
    for config, word in ((plain, "norm behind it"), (replace(plain, stem_norm=True, scale=4.0), "scale its states")):
        with pytest.raises(CapabilityError, match=word):
            AUTHORS.write(HydraNet(config), target, "t", tmp_path / "out")
    with pytest.raises(CapabilityError, match="vocabulary 24 and width 16"):
        formats.load(PUBLISHED / "hydra", random_decoder(tiny_config(layers=2, hidden=16, vocab=24)), None)


@pytest.mark.parametrize(
    ("key", "value"), [("hydra_head_arch", "eagle-attn"), ("grounded_heads", False), ("hidden_state_offset", 1)]
)
def test_other_kinds_of_heads_are_named(key: str, value: object, target: Decoder, tmp_path: Path):
    shutil.copytree(PUBLISHED / "hydra", tmp_path / "h")
    told = json.loads((tmp_path / "h/config.json").read_text())
    (tmp_path / "h/config.json").write_text(json.dumps({**told, key: value}))
    with pytest.raises(CapabilityError, match=f"{key}={value!r}"):
        formats.load(tmp_path / "h", target, None)


@pytest.mark.parametrize(
    ("config", "name", "words"),
    [
        ({"rope_theta": "x"}, "", "rope_theta='x' is not supported"),
        ({"rms_norm_eps": [1]}, "", r"rms_norm_eps=\[1\] is not supported"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "", "rope_scaling=.* is not supported"),
        ({}, "self_attn.q_proj", "q_proj and gate_proj of prefix_embeding_layer must be matrices"),
        ({}, "mlp.gate_proj", "q_proj and gate_proj of prefix_embeding_layer must be matrices"),
    ],
)
def test_a_prefix_layer_that_cannot_be_is_named(
    config: dict[str, object], name: str, words: str, target: Decoder, tmp_path: Path
):
    tensors = torch.load(PUBLISHED / "hydra_prefix/hydra_lm_head.pt", weights_only=True)
    broken = {f"prefix_embeding_layer.layers.0.{name}.weight": torch.tensor(1.0)} if name else {}
    torch.save({**tensors, **broken}, tmp_path / "hydra_lm_head.pt")
    (tmp_path / "config.json").write_text(json.dumps({**config, "hydra_head_arch": "prefix-mlp"}))
    with pytest.raises(ModelLoadError, match=words):
        formats.load(tmp_path, target, None)


def test_a_null_in_config_is_the_usual_number(target: Decoder, tmp_path: Path):
    shutil.copy(PUBLISHED / "hydra_prefix/hydra_lm_head.pt", tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"rope_theta": None, "rms_norm_eps": None}))
    config = formats.load(tmp_path, target, None).config
    assert (config.stem_rope_theta, config.stem_norm_eps) == (10000.0, 1e-6)


def test_a_missing_tensor_is_named(target: Decoder, tmp_path: Path):
    tensors = torch.load(PUBLISHED / "hydra/hydra_lm_head.pt", weights_only=True)
    tensors.pop("hydra_mlp.1.0.res_connection.bias")
    torch.save(tensors, tmp_path / "hydra_lm_head.pt")
    with pytest.raises(ModelLoadError, match=r"hydra_mlp\.1\.0\.res_connection\.bias' is missing"):
        formats.load(tmp_path, target, None)

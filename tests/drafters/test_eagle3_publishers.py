"""EAGLE-3 heads as publishers write them: without a head, of another model_type, on one state, with nested flags."""

import json

import pytest
import torch
from drafters.test_eagle3 import PEERS, middle, respelled, target_of
from safetensors.torch import load_file, save_file

from outdraft.drafters.eagle3.formats import load_eagle3, read_eagle3, save_eagle3
from outdraft.drafters.eagle3.learn import LEARN, Eagle3Learning
from outdraft.drafters.shared.features.fused.files import FLAGS
from outdraft.models.networks.port import facts_of
from outdraft.options.errors import CapabilityError, ModelLoadError
from outdraft.testing.tiny import random_decoder, tiny_config

TAPS = "eagle_aux_hidden_state_layer_ids"
NESTED = {"eagle_config": {TAPS: [0, 2, 4]}}
TARGET = random_decoder(tiny_config(layers=6, hidden=16, vocab=24), dtype=torch.float32)


def read(tmp_path, config, **more):
    return load_eagle3(respelled(tmp_path, config, middle, **more), facts_of(TARGET), lent=TARGET)


@pytest.mark.parametrize("size", [0, 9])
def test_a_network_without_a_head_is_scored_by_the_targets(size, tmp_path):
    """A fresh network's head is a copy of the target's rows: the file without it says the same."""
    net = LEARN.new(Eagle3Learning(num_heads=2, num_kv_heads=1, draft_vocab_size=size), TARGET, 0).net
    save_eagle3(net, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    bare = respell(tmp_path, {name: one for name, one in tensors.items() if name != "lm_head.weight"})
    assert bare.lm_head is None and not bare.config.own_head
    states = torch.randn(5, 16)
    torch.testing.assert_close(bare.logits(states), net.logits(states), atol=1e-5, rtol=1e-5)
    assert bare.logits(states).shape == (5, size or 24)
    save_eagle3(bare, tmp_path / "again")
    assert "lm_head.weight" not in load_file(tmp_path / "again/model.safetensors")


def respell(place, tensors):
    save_file(tensors, place / "model.safetensors")
    return load_eagle3(place, facts_of(TARGET), torch.float32, lent=TARGET)


def test_a_network_without_a_head_learns_on(tmp_path):
    net = LEARN.new(Eagle3Learning(num_heads=2, num_kv_heads=1), TARGET, 0).net
    save_eagle3(net, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    respell(tmp_path, {name: one for name, one in tensors.items() if name != "lm_head.weight"})
    learner = LEARN.load(Eagle3Learning(), TARGET, tmp_path)
    learner.net.logits(torch.randn(2, 16)).sum().backward()
    assert learner.net.norm.weight.grad is not None


def test_a_network_of_another_width_has_no_use_for_the_targets_head():
    narrow = target_of(hidden=8)
    with pytest.raises(CapabilityError, match="belongs to its own target"):
        load_eagle3(PEERS / "plain", narrow)


@pytest.mark.parametrize("model_type", ["qwen2", "phi3", "mistral", "llama"])
def test_the_class_says_what_is_computed_not_the_model_type(model_type, tmp_path):
    found = read(tmp_path, {**NESTED, "model_type": model_type, "use_sliding_window": True, "sliding_window": 4})
    assert found.config.layers.architecture == "llama" and not found.config.layers.qkv_bias


def test_norms_of_queries_and_keys_are_known_by_their_tensors(tmp_path):
    files = read_eagle3(respelled(tmp_path, {"model_type": "llama"}, middle, variant="qwen_two_layers"), 6)
    assert files.config.layers.qk_norm


def test_one_state_is_the_targets_last_behind_its_norm(tmp_path, caplog):
    net = read(tmp_path, {"eagle_config": {"use_aux_hidden_state": False, TAPS: []}})
    assert net.config.taps == (6,) and net.fc is None and "fc.weight is not read" in caplog.text
    states = torch.randn(4, 16)
    assert torch.equal(net.fuse([states]), TARGET.norm(states).to(net.dtype))
    save_eagle3(net, tmp_path / "again")
    again = read_eagle3(tmp_path / "again", 6)
    assert again.config == net.config and "fc.weight" not in again.tensors


def test_one_state_leaves_no_norm_before_its_fusion(tmp_path):
    with pytest.raises(ModelLoadError, match="use_aux_hidden_state=false"):
        read(tmp_path, {"eagle_config": {"use_aux_hidden_state": False, "norm_before_fc": True}})


@pytest.mark.parametrize("flag", ["norm_before_residual", "norm_output"])
def test_a_flag_is_read_wherever_it_stands(flag, tmp_path):
    inside = {"eagle_config": {TAPS: [0, 2, 4], flag: True}}
    assert getattr(read(tmp_path, inside).config, flag)
    assert getattr(read(tmp_path, {**inside, flag: True}).config, flag)
    assert not any(getattr(read(tmp_path, NESTED).config, each) for each in FLAGS)
    with pytest.raises(ModelLoadError, match=f"{flag} of config.json is False and in eagle_config True"):
        read(tmp_path, {**inside, flag: False})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("use_input_layernorm_in_first_layer", False),
        ("use_last_layernorm", False),
        ("use_mtp_layernorm", True),
        ("next_layer_regular", False),
        ("parallel_draft_step", 2),
    ],
)
def test_another_computation_is_refused_by_its_key(key, value, tmp_path):
    with pytest.raises(ModelLoadError, match=f"eagle_config.{key}={value} is not supported"):
        read(tmp_path, {"eagle_config": {TAPS: [0, 2, 4], key: value}})


@pytest.mark.parametrize("more", [{}, {TAPS: None}, {"target_layer_ids": [0, 2, 3]}, {"num_aux_hidden_states": 3}])
def test_the_taps_are_those_of_whichever_key_has_a_value(more, tmp_path):
    assert read(tmp_path, {"aux_hidden_state_layer_ids": [1, 3, 4], **more}).config.taps == (1, 3, 4)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (
            {TAPS: [1, 3, 5], "aux_hidden_state_layer_ids": [1, 2, 3]},
            rf"{TAPS}: after .* aux_hidden.*: after \(1, 2, 3\)",
        ),
        ({**NESTED, "num_aux_hidden_states": 4}, f"num_aux_hidden_states=4 and has 3 taps .eagle_config.{TAPS}"),
        ({"num_aux_hidden_states": 4}, "num_aux_hidden_states=4 .*the usual ones, as it names none"),
        ({"eagle_config": "abc"}, "eagle_config='abc' of config.json is no table"),
    ],
)
def test_what_contradicts_itself_is_named_by_its_keys(config, words, tmp_path):
    with pytest.raises(ModelLoadError, match=words):
        read(tmp_path, config)


@pytest.mark.parametrize("key", ["quantization_config", "logit_softcapping"])
def test_a_key_that_changes_numbers_is_refused_beside_the_layers_too(key, tmp_path):
    save_eagle3(LEARN.new(Eagle3Learning(num_heads=2, num_kv_heads=1), TARGET, 0).net, tmp_path)
    told = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**told, key: {"bits": 4}}))
    with pytest.raises(ModelLoadError, match=f"{key}=.* is not supported"):
        read_eagle3(tmp_path, 6)


def test_tokens_are_those_of_t2d_where_it_stands_alone(tmp_path):
    both, alone = ({"variant": "plain", "drop": drop} for drop in ((), ("d2t",)))
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
    vocab = read(tmp_path / "a", NESTED, **both).vocab
    assert len(vocab) == 16 and torch.equal(read(tmp_path / "b", NESTED, **alone).vocab, vocab)


@pytest.mark.parametrize("t2d", [torch.tensor(True), torch.ones(24)])
def test_a_t2d_that_says_nothing_of_tokens_is_refused(t2d, tmp_path):
    with pytest.raises(ModelLoadError, match="t2d must say true or false of 24 tokens"):
        read(tmp_path, NESTED, drop=("d2t",), add={"t2d": t2d})


def test_what_is_not_read_is_named(tmp_path, caplog):
    read(tmp_path, {"eagle_config": {TAPS: [0, 2, 4], "use_torch_compile": False, "warp": 3}})
    assert len(caplog.messages) == 1 and "use_torch_compile, warp" in caplog.text

"""MTP layers in both spellings: the names of the released package, and the same network in each."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from outdraft.core.learner_registry import find_learner
from outdraft.drafters.mtp.formats import FORMATS
from outdraft.drafters.mtp.net import MtpNet
from outdraft.models.networks.base import Decoder
from outdraft.options.errors import CapabilityError, ModelLoadError
from outdraft.testing.tiny import random_decoder, tiny_config
from outdraft.training.convert import convert
from outdraft.weights.safetensors import read_tensors, save_tensors

PEERS = Path(__file__).parents[1] / "peers/mtp"
NATIVE, SPECULATORS, DEEPSEEK = FORMATS
NAMES = {  # of the released package (speculators 0.9.0)
    "final_layernorm",
    "hidden_layernorm",
    "input_layernorm",
    "input_proj",
    "mlp.down_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "post_attention_layernorm",
    "self_attn.k_norm",
    "self_attn.k_proj",
    "self_attn.o_proj",
    "self_attn.q_norm",
    "self_attn.q_proj",
    "self_attn.v_proj",
    "token_layernorm",
}


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


def inside(directory: Path, model_type: str, names: dict[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    """A whole model that does not load here, with these tensors in it beside two of its own; returns the first."""
    generator = torch.Generator().manual_seed(1)
    held = {name: torch.randn(shape, generator=generator).bfloat16() for name, shape in names.items()}
    own = {name: torch.zeros(2, 2) for name in ("model.embed_tokens.weight", "model.layers.0.mlp.gate.weight")}
    told = {"model_type": model_type, "architectures": ["AnyForCausalLM"], "num_hidden_layers": 4, "dtype": "bfloat16"}
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(told))
    save_tensors(held | own, directory / "model.safetensors")
    return held


def bits(directory: Path) -> dict[str, torch.Tensor]:
    return {name: one.view(torch.int16) for name, one in read_tensors(directory / "model.safetensors").items()}


def same(found: dict[str, torch.Tensor], held: dict[str, torch.Tensor]) -> bool:
    return found.keys() == held.keys() and all(torch.equal(found[n], held[n].view(torch.int16)) for n in held)


QWEN_NEXT = {
    "mtp.fc.weight": (8, 16),
    "mtp.norm.weight": (8,),
    "mtp.pre_fc_norm_hidden.weight": (8,),
    "mtp.pre_fc_norm_embedding.weight": (8,),
    "mtp.layers.0.input_layernorm.weight": (8,),
    "mtp.layers.0.self_attn.q_proj.weight": (16, 8),
    "mtp.layers.0.mlp.gate.weight": (12, 8),
    "mtp.layers.0.mlp.shared_expert.up_proj.weight": (6, 8),
    "mtp.layers.0.mlp.shared_expert_gate.weight": (1, 8),
    **{f"mtp.layers.0.mlp.experts.{i}.{part}.weight": (6, 8) for i in range(12) for part in ("gate_proj", "up_proj")},
    **{f"mtp.layers.0.mlp.experts.{i}.down_proj.weight": (8, 6) for i in range(12)},
}


def test_qwen3_nexts_experts_go_to_speculators_and_back(tmp_path: Path):
    """Out of a target that does not load; there one tensor holds a map of all experts, by their numbers."""
    held = inside(tmp_path / "target", "qwen3_next", QWEN_NEXT)
    told = convert(str(tmp_path / "target"), "speculators", "a/target", tmp_path / "s")
    assert (told.read_as, told.written_as, told.lines) == (
        "mtp",
        "speculators",
        {"vllm": f"vllm serve {tmp_path / 's'}"},
    )
    made = read_tensors(tmp_path / "s/model.safetensors")
    layer = "mtp_layers.0."
    assert set(made) == {
        layer + name
        for name in (
            "input_proj.weight",
            "final_layernorm.weight",
            "hidden_layernorm.weight",
            "token_layernorm.weight",
            "input_layernorm.weight",
            "self_attn.q_proj.weight",
            "mlp.gate.weight",
            "mlp.shared_expert.up_proj.weight",
            "mlp.shared_expert_gate.weight",
            "mlp.experts.gate_up_proj",
            "mlp.experts.down_proj",
        )
    }
    up = held["mtp.layers.0.mlp.experts.10.up_proj.weight"]
    assert torch.equal(made[layer + "mlp.experts.gate_up_proj"][10, 6:], up)
    config = json.loads((tmp_path / "s/config.json").read_text())
    assert config["speculators_config"]["verifier"] == {"name_or_path": "a/target", "architectures": ["AnyForCausalLM"]}
    assert config["transformer_layer_config"]["model_type"] == "qwen3_next"
    back = convert(str(tmp_path / "s"), "mtp", "a/target", tmp_path / "back")
    assert same(bits(tmp_path / "back"), held) and back.lines == {}, "outdraft does not run experts"
    convert(str(tmp_path / "back"), "speculators", "a/target", tmp_path / "again")
    assert same(bits(tmp_path / "again"), made)


def test_deepseeks_layer_goes_to_other_names_and_back(tmp_path: Path):
    """Its number is that of the target's layers; speculators has no place for the embeddings and head in it."""
    place, shared = "model.layers.4.", ("embed_tokens.weight", "shared_head.head.weight")
    own = {
        "eh_proj.weight": (8, 16),
        "enorm.weight": (8,),
        "hnorm.weight": (8,),
        "shared_head.norm.weight": (8,),
        "self_attn.kv_a_proj_with_mqa.weight": (6, 8),
        "mlp.experts.0.gate_proj.weight": (6, 8),
        "mlp.experts.0.up_proj.weight": (6, 8),
        "mlp.experts.0.down_proj.weight": (8, 6),
    }
    sizes = own | dict.fromkeys(shared, (5, 8))
    held = inside(tmp_path / "target", "deepseek_v3", {place + name: size for name, size in sizes.items()})
    convert(str(tmp_path / "target"), "mtp", "a/target", tmp_path / "qwen")
    named = bits(tmp_path / "qwen")
    for theirs, ours in {"eh_proj": "fc", "enorm": "pre_fc_norm_embedding", "hnorm": "pre_fc_norm_hidden"}.items():
        assert torch.equal(named[f"mtp.{ours}.weight"], held[f"{place}{theirs}.weight"].view(torch.int16))
    assert torch.equal(named["mtp.norm.weight"], held[place + "shared_head.norm.weight"].view(torch.int16))
    convert(str(tmp_path / "qwen"), "deepseek", "a/target", tmp_path / "back")
    assert same(bits(tmp_path / "back"), held)
    convert(str(tmp_path / "back"), "speculators", "a/target", tmp_path / "s")
    convert(str(tmp_path / "s"), "deepseek", "a/target", tmp_path / "last")
    assert same(bits(tmp_path / "last"), {name: held[name] for name in held if not name.endswith(shared)})


def test_a_dense_layer_inside_a_whole_model_is_taken_out_and_drafts(target: Decoder, published: Path, tmp_path: Path):
    tensors = read_tensors(published / "model.safetensors")
    whole = {**tensors, "model.embed_tokens.weight": torch.zeros(24, 16)}
    save_tensors(whole, published / "model.safetensors")
    told = convert(str(published), "mtp", "a/target", tmp_path / "out")
    assert read_tensors(tmp_path / "out/model.safetensors").keys() == tensors.keys() and "outdraft" in told.lines
    assert isinstance(NATIVE.read(tmp_path / "out", target, None), MtpNet)
    with pytest.raises(CapabilityError, match="DeepSeek's names are for its own layers, and this one is of qwen3"):
        DEEPSEEK.write(NATIVE.read(tmp_path / "out", target, None), target, "t", tmp_path / "d")


@pytest.mark.parametrize(
    ("more", "less", "error", "words"),
    [
        ({"mtp.layers.1.input_layernorm.weight": (8,)}, "", CapabilityError, "not of the first MTP layer"),
        ({"mtp.layers.0.mlp.experts.0.up_proj.weight_scale_inv": (1, 1)}, "", CapabilityError, "no name for this"),
        ({}, "mtp.layers.0.mlp.experts.3.up_proj.weight", ModelLoadError, "some expert lacks a weight"),
    ],
)
def test_what_has_no_other_names_is_refused(
    more: dict[str, tuple[int, ...]], less: str, error: type[Exception], words: str, tmp_path: Path
):
    inside(tmp_path / "target", "qwen3_next", {n: s for n, s in {**QWEN_NEXT, **more}.items() if n != less})
    with pytest.raises(error, match=words):
        convert(str(tmp_path / "target"), "speculators", "a/target", tmp_path / "s")
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("more", "error", "words"),
    [
        ({"mtp_layers.1.input_proj.weight": torch.ones(8, 16)}, CapabilityError, r"mtp_layers\.1\..*not of the first"),
        ({"warp": torch.ones(2)}, CapabilityError, "warp is not of the first MTP layer"),
        ({"mtp_layers.0.mlp.experts.gate_up_proj": torch.ones(12, 15, 8)}, ModelLoadError, r"\(12, 15, 8\) is not of"),
        ({"mtp_layers.0.mlp.experts.down_proj": torch.tensor(1.0)}, ModelLoadError, r"of shape \(\) is not of experts"),
    ],
)
def test_what_lies_beside_a_layer_of_speculators_is_refused(
    more: dict[str, torch.Tensor], error: type[Exception], words: str, tmp_path: Path
):
    inside(tmp_path / "target", "qwen3_next", QWEN_NEXT)
    convert(str(tmp_path / "target"), "speculators", "a/target", tmp_path / "s")
    file = tmp_path / "s/model.safetensors"
    save_tensors({**read_tensors(file), **more}, file)
    with pytest.raises(error, match=words):
        convert(str(tmp_path / "s"), "mtp", "a/target", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("told", "to", "words"),
    [
        (
            {"architectures": "AnyForCausalLM"},
            "speculators",
            "architectures='AnyForCausalLM' .* must be a list of names",
        ),
        ({"architectures": None}, "speculators", None),
        ({"num_hidden_layers": True}, "deepseek", "num_hidden_layers=True .* must be a number"),
    ],
)
def test_a_targets_config_is_read_to_the_letter(told: dict[str, object], to: str, words: str | None, tmp_path: Path):
    inside(tmp_path / "target", "qwen3_next", QWEN_NEXT)
    path = tmp_path / "target/config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **told}))
    if words is not None:
        with pytest.raises(ModelLoadError, match=words):
            convert(str(tmp_path / "target"), to, "a/target", tmp_path / "out")
        return
    convert(str(tmp_path / "target"), to, "a/target", tmp_path / "out")
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert config["speculators_config"]["verifier"]["architectures"] == []

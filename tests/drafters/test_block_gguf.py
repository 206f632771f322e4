"""Block networks in GGUF files of llama.cpp's architecture `dflash`: the same network as in their directories."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from drafters.block_gguf import write_blocks
from drafters.test_block_formats import network, read
from drafters.test_blocks import PEERS, farthest, target_of

from outdraft import LLM, SamplingParams, zoo
from outdraft.core.learner_registry import find_learner
from outdraft.engine.naming.speculative_config import from_mapping
from outdraft.models.files.foreign_heads import recognise
from outdraft.models.files.load import load_model
from outdraft.models.networks.base import Decoder
from outdraft.options.errors import ConfigError, ModelLoadError
from outdraft.testing.tiny import random_decoder, tiny_config
from outdraft.training.convert import convert
from outdraft.weights.safetensors import read_tensors

CONVERTED = ("dflash_zlab", "dflash_zlab_slides", "dflash_zlab_causal", "dflash2_zlab", "dspark")  # what it takes


@pytest.fixture
def target() -> Decoder:
    return random_decoder(tiny_config(layers=6), dtype=torch.float32)


@pytest.mark.parametrize("variant", CONVERTED)
def test_every_slot_says_what_the_released_module_said(variant: str, tmp_path: Path):
    said, kind = read_tensors(PEERS / variant / "numbers.safetensors"), variant.partition("_")[0]
    path = write_blocks(PEERS / variant, tmp_path / "draft.gguf")
    found = recognise(path)
    assert found is not None and (found[0], found[1].name) == (kind, "gguf")
    method = find_learner(kind)
    assert farthest(method.load(method.options(), target_of(said), path), said) < 1e-4


@pytest.mark.parametrize("kind", ["dflash", "dflash2", "dspark"])
def test_not_a_bit_changes(kind: str, target: Decoder, tmp_path: Path):
    net = network(kind, target, window=3)
    net.config = replace(net.config, embedding_scale=3.0, output_multiplier=0.5, logit_cap=1.0, causal=True)
    find_learner(kind).formats[1].write(net, target, "t", tmp_path / "d")
    directory, file = (
        read(kind, tmp_path / "d", target),
        read(kind, write_blocks(tmp_path / "d", tmp_path / "x.gguf"), target),
    )
    assert file.config == replace(directory.config, causal_windows=True, layers=file.config.layers)
    same = ("windows", "rope", "norm_eps", "num_layers", "hidden_size", "vocab_size", "max_len", "qk_norm")
    assert all(getattr(file.config.layers, name) == getattr(directory.config.layers, name) for name in same)
    assert file.own == directory.own
    theirs = dict(directory.named_parameters())
    assert all(torch.equal(one, theirs.pop(name)) for name, one in file.named_parameters()) and not theirs


def test_a_draft_vocabulary_keeps_the_targets_ids(target: Decoder, tmp_path: Path):
    net = network("dspark", target, draft_vocab_size=20)
    net.vocab = torch.arange(20) * 3
    find_learner("dspark").formats[0].write(net, target, "t", tmp_path / "d")
    file = read("dspark", write_blocks(tmp_path / "d", tmp_path / "x.gguf"), target)
    assert file.vocab is not None and file.vocab.tolist() == net.vocab.tolist()
    assert file.lm_head is not None and torch.equal(file.lm_head.weight, net.lm_head.weight)


def test_rounded_tensors_are_made_whole(target: Decoder, tmp_path: Path):
    net = network("dflash", target)
    find_learner("dflash").formats[1].write(net, target, "t", tmp_path / "d")
    file = read("dflash", write_blocks(tmp_path / "d", tmp_path / "x.gguf", kind="Q8_0"), target)
    theirs = dict(net.named_parameters())
    far = {name: (one - theirs[name]).abs().max() / theirs[name].abs().max() for name, one in file.named_parameters()}
    assert 0 < far["fc.weight"] < 0.01 and max(far.values()) < 0.01


def test_a_file_drafts_and_converts_as_its_directory_does(tmp_path: Path):
    target, short = LLM("zoo:target"), SamplingParams(max_tokens=8)
    whole = load_model(zoo.path("target"))
    net = network("dflash", whole, taps=(1, 2), block_size=4)
    find_learner("dflash").formats[1].write(net, whole, "zoo:target", tmp_path / "d")
    path = write_blocks(tmp_path / "d", tmp_path / "x.gguf")
    llm = LLM("zoo:target", speculative_config={"model": str(path), "num_speculative_tokens": 3})
    assert llm.generate("It was", short).text == target.generate("It was", short).text
    assert from_mapping({"model": str(path)}).drafter == from_mapping({"model": str(tmp_path / "d")}).drafter
    assert convert(str(path), "speculators", "zoo:target", tmp_path / "out").read_as == "gguf"
    again = read("dflash", tmp_path / "out", whole)
    assert all(torch.equal(one, dict(net.named_parameters())[name]) for name, one in again.named_parameters())
    with pytest.raises(ConfigError, match="--to gguf is no layout or server"):
        convert(str(path), "gguf", "zoo:target", tmp_path / "no")
    with pytest.raises(ConfigError, match="holds no draft in a layout"):
        convert(
            str(write_blocks(tmp_path / "d", tmp_path / "y.gguf", arch="eagle3")), "z-lab", "zoo:target", tmp_path / "n"
        )


REFUSED = [
    ("dflash", {"hidden_activation": "gelu"}, r"dflash.hidden_activation='gelu' is not supported: take the model's"),
    ("dflash", {"hyper_connection__count": 4}, r"dflash.hyper_connection.count=4 is not supported"),
    ("dspark", {}, r"no dflash network by its tensors; what lies there is for the method 'dspark'"),
    ("dflash2", {}, r"no dflash network by its tensors; what lies there is for the method 'dflash2'"),
]


@pytest.mark.parametrize(("kind", "metadata", "words"), REFUSED)
def test_what_is_not_computed_is_refused_by_name(
    kind: str, metadata: dict, words: str, target: Decoder, tmp_path: Path
):
    find_learner(kind).formats[1].write(network(kind, target), target, "t", tmp_path / "d")
    path = write_blocks(tmp_path / "d", tmp_path / "x.gguf", **metadata)
    with pytest.raises(ModelLoadError, match=words):
        read("dflash", path, target)


def test_another_file_is_no_block_network(target: Decoder, tmp_path: Path):
    find_learner("dflash").formats[1].write(network("dflash", target), target, "t", tmp_path / "d")
    path = write_blocks(tmp_path / "d", tmp_path / "x.gguf", arch="eagle3")
    with pytest.raises(ModelLoadError, match=r"general.architecture='eagle3' is not read .*supported: dflash"):
        read("dflash", path, target)
    assert recognise(path) is None
    path.write_bytes(path.read_bytes()[:200])
    assert recognise(path) is None
    with pytest.raises(ModelLoadError, match="is no GGUF file, or cut short"):
        read("dflash", path, target)

"""Medusa's heads as their authors write them: the fixture comes from tests/peers/medusa_by_its_authors.py."""

import shutil
from pathlib import Path

import pytest
import torch

from outdraft.drafters.medusa import formats
from outdraft.engine.llm import LLM
from outdraft.models.files.load import save_model
from outdraft.models.networks.base import Decoder
from outdraft.options.errors import CapabilityError, ModelLoadError
from outdraft.options.params import SamplingParams
from outdraft.testing.tiny import random_decoder, tiny_config
from outdraft.weights.safetensors import read_tensors, save_tensors

PUBLISHED = Path(__file__).parent / "published/medusa"
AUTHORS, OURS = formats.FORMATS


@pytest.fixture
def target() -> Decoder:
    return random_decoder(tiny_config(layers=2, hidden=16, vocab=23), dtype=torch.float32)


def test_heads_say_what_the_authors_module_said(target: Decoder):
    net, said = formats.load(PUBLISHED, target, None), read_tensors(PUBLISHED / "said.safetensors")
    assert (net.config.num_heads, net.config.num_layers) == (3, 2)  # config.json says 2 and 1
    for head, theirs in enumerate(said["logits"]):
        assert torch.allclose(net.logits(net.states(said["states"], head), head), theirs, atol=1e-5)
    assert not torch.allclose(said["logits"][0], said["logits"][1], atol=1e-2)  # so that a mix-up would show


def test_both_layouts_keep_every_bit(target: Decoder, tmp_path: Path):
    first = formats.load(PUBLISHED, target, None)
    OURS.write(first, target, "t", tmp_path / "ours")
    assert OURS.matches(tmp_path / "ours") and not AUTHORS.matches(tmp_path / "ours")
    AUTHORS.write(formats.load(tmp_path / "ours", target, None), target, "t", tmp_path / "theirs")
    assert AUTHORS.matches(tmp_path / "theirs")
    pickled = torch.load(PUBLISHED / "medusa_lm_head.pt", weights_only=True)
    written = read_tensors(tmp_path / "theirs/medusa_lm_head.safetensors")
    assert written.keys() == pickled.keys()
    assert all(torch.equal(written[name], pickled[name]) for name in pickled)


def test_merged_heads_lie_inside_the_target(target: Decoder, tmp_path: Path):
    pickled = torch.load(PUBLISHED / "medusa_lm_head.pt", weights_only=True)
    shutil.copy(PUBLISHED / "config.json", tmp_path)
    inside = {f"medusa_head.{name}": tensor for name, tensor in pickled.items()}
    save_tensors({**inside, "lm_head.weight": torch.zeros(2)}, tmp_path / "model.safetensors")
    net = formats.load(tmp_path, target, None)
    assert torch.equal(net.projections[2].weight, pickled["2.2.weight"])


def test_published_heads_draft(target: Decoder, tmp_path: Path):
    save_model(target, tmp_path / "target")
    llm = LLM(
        str(tmp_path / "target"),
        speculative_config={"method": "medusa", "model": str(PUBLISHED), "width": 1},
        dtype="float32",
    )
    plain = LLM(str(tmp_path / "target"), drafter="none", dtype="float32")
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
    drafted, alone = (one.generate([{"prompt_token_ids": [1, 2, 3]}], params)[0] for one in (llm, plain))
    assert drafted.token_ids == alone.token_ids
    assert drafted.stats.num_draft_tokens > 0


def test_heads_of_another_target_are_refused(target: Decoder):
    with pytest.raises(CapabilityError, match="vocabulary 24 and width 16"):
        formats.load(PUBLISHED, random_decoder(tiny_config(layers=2, hidden=16, vocab=24)), None)


@pytest.mark.parametrize("fault", ["cut", "object", "lacking", "misshapen", "integers", "far", "unread"])
def test_damaged_files_are_named(fault: str, target: Decoder, tmp_path: Path):
    shutil.copytree(PUBLISHED, tmp_path / "heads")
    path = tmp_path / "heads/medusa_lm_head.pt"
    tensors = torch.load(path, weights_only=True)
    words = {"cut": "cut short or damaged", "object": "refused", "lacking": "missing", "misshapen": "shape"}
    words |= {"integers": "1.0.linear.bias' .* is of type int32", **dict.fromkeys(("far", "unread"), "no projections")}
    if fault == "cut":
        path.write_bytes(path.read_bytes()[:5000])
    elif fault == "object":
        torch.save({"0.0.weight": Path("x")}, path)
    elif fault == "lacking":
        torch.save({name: t for name, t in tensors.items() if name != "1.0.linear.bias"}, path)
    elif fault in ("far", "unread"):  # a number of layers that would be counted out; one of another spelling
        names = {"0.2.weight": "0.300000.weight" if fault == "far" else "00.2.weight"}
        torch.save({names.get(name, name): t for name, t in tensors.items() if name[0] == "0"}, path)
    else:
        bias = torch.zeros(3) if fault == "misshapen" else tensors["1.0.linear.bias"].int()
        torch.save({**tensors, "1.0.linear.bias": bias}, path)
    with pytest.raises(ModelLoadError, match=words[fault]):
        formats.load(tmp_path / "heads", target, None)


def test_integers_in_our_own_layout_are_no_weights(target: Decoder, tmp_path: Path):
    OURS.write(formats.load(PUBLISHED, target, None), target, "t", tmp_path)
    file = tmp_path / "model.safetensors"
    save_tensors({name: t.int() if "bias" in name else t for name, t in read_tensors(file).items()}, file)
    with pytest.raises(ModelLoadError, match=r"linear\.bias' .* is of type I32"):
        formats.load(tmp_path, target, None)


def test_heads_that_borrow_the_targets_head_are_written_with_copies_of_it(target: Decoder, tmp_path: Path):
    from outdraft.core.learner_registry import find_learner
    from outdraft.drafters.medusa.net import MedusaNet

    method = find_learner("medusa")
    learner = method.new(method.options(num_heads=2, own_projections=False), target, 0)
    net = learner.module
    assert isinstance(net, MedusaNet) and not [name for name, _ in net.named_parameters() if "projections" in name]
    AUTHORS.write(net, target, "t", tmp_path)
    read, h = formats.load(tmp_path, target, None), torch.randn(4, 16)
    for head in range(2):
        assert torch.allclose(read.logits(read.states(h, head), head), net.logits(net.states(h, head), head), atol=1e-6)

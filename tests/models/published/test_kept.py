"""Packed weights that are kept, of other programs' checkpoints: the second load reads none of the source's weights, and
a source that is changed in any part of it is packed anew."""

import json
import os

import pytest
import torch
from kernels.test_stack import Feeder
from models.published import writers
from models.published.writers import change_tensors, publish

from outdraft.kernels.library import library
from outdraft.models.files.published.linear import StoredLinear
from outdraft.models.networks.native import NativeDecoder
from outdraft.models.remake import packed_cache
from outdraft.models.target.open_network import load_network

pytestmark = pytest.mark.skipif(library() is None, reason="the native kernels are not built here (no C++ compiler)")
UP = "model.layers.1.mlp.up_proj"
CASES = {  # name -> (writer, a tensor that is changed, and how)
    "gptq-4": (writers.gptq(), "scales", lambda one: one.mul_(2)),
    "gptq-8-zeros": (writers.gptq(bits=8, symmetric=False), "qzeros", lambda one: one.add_(1)),
    "gptq-desc_act": (writers.gptq(order="by activation"), "g_idx", lambda one: one.copy_(one.flip(0))),
    "awq": (writers.awq(), "qweight", lambda one: one.bitwise_xor_(1)),
    "auto-round": (writers.auto_round(), "qweight", lambda one: one.bitwise_xor_(1)),
    "compressed-W4A16": (writers.packed(), "weight_packed", lambda one: one.bitwise_xor_(1)),
    "compressed-W8A16": (writers.packed(bits=8, group=-1), "weight_scale", lambda one: one.mul_(2)),
    "fp8": (writers.fp8((64, 64)), "weight_scale_inv", lambda one: one.mul_(2)),
    "nvfp4": (writers.fours(), "weight_global_scale", lambda one: one.mul_(2)),
    "mxfp4": (writers.fours("mxfp4"), "weight_scale", lambda one: one.add_(1)),
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """A cache of the test's own, in which small models are kept too."""
    monkeypatch.setenv("OUTDRAFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(packed_cache, "SMALLEST", 0)
    return tmp_path / "cache/packed"


@pytest.fixture
def reads(monkeypatch):
    """How many maps were read so far, as integers or floats."""
    counted = []
    for name in ("integers", "whole", "blocks"):
        inside = getattr(StoredLinear, name)
        monkeypatch.setattr(
            StoredLinear, name, lambda self, *rest, inside=inside: counted.append(self.parts) or inside(self, *rest)
        )
    return counted


def load(directory):
    network = load_network(directory, dtype="bfloat16")
    assert isinstance(network, NativeDecoder)
    return network


def said(network):
    return Feeder(network).feed(torch.randint(61, (12,), generator=torch.Generator().manual_seed(0)))


def in_memory(directory, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("OUTDRAFT_CACHE", "off")
        return load(directory)


def keeping_times(path, change):
    """As a tool leaves a file that keeps times."""
    times = path.stat().st_mtime_ns
    change()
    os.utime(path, ns=(times, times))


@pytest.mark.parametrize("name", CASES)
def test_the_second_load_reads_no_weights_and_a_changed_source_is_packed_anew(
    name, tmp_path, own_cache, reads, monkeypatch
):
    (settings, write), part, edit = CASES[name]
    published, _ = publish(tmp_path, settings, write)
    first = load(published)
    assert reads
    del reads[:]
    second = load(published)
    assert not reads and len(list(own_cache.glob("*.packed"))) == 1
    assert second.config == first.config and second.config.variant
    inside = said(in_memory(published, monkeypatch))
    assert torch.equal(said(first), inside) and torch.equal(said(second), inside)
    weights = published / "model.safetensors"
    keeping_times(weights, lambda: change_tensors(published, lambda tensors: edit(tensors[f"{UP}.{part}"])))
    del reads[:]
    changed = said(load(published))
    assert reads and len(list(own_cache.glob("*.packed"))) == 2
    assert torch.equal(changed, said(in_memory(published, monkeypatch))) and not torch.equal(changed, inside)


def test_settings_are_a_part_of_the_source(tmp_path, own_cache, reads, monkeypatch):
    """The same tensors with zero points as they are, not minus one."""
    published, _ = publish(tmp_path, *writers.gptq(symmetric=False))
    before = said(load(published))
    path = published / "config.json"

    def change():
        raw = json.loads(path.read_text())
        raw["quantization_config"]["checkpoint_format"] = "gptq_v2"
        path.write_text(json.dumps(raw))

    keeping_times(path, change)
    del reads[:]
    after = said(load(published))
    assert reads and not torch.equal(before, after)
    assert torch.equal(after, said(in_memory(published, monkeypatch)))

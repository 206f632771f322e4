"""The device by name: what is there is taken, "auto" prefers CUDA, and anything else is one sentence."""

import pytest
import torch

from outdraft.models.networks.device import choose_device
from outdraft.options.errors import CapabilityError


def machine(monkeypatch, count: int, built: str | None = "13.0") -> None:
    """PyTorch finds so many CUDA devices, each of which can be written to; `built`: its own version of CUDA."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.version, "cuda", built)
    monkeypatch.setattr(torch.version, "hip", None)


@pytest.mark.parametrize("name", ["cpu", "cpu:0", torch.device("cpu")])
def test_the_cpu_is_one(name, monkeypatch):
    machine(monkeypatch, 2)
    assert choose_device(name) == torch.device("cpu")


def test_auto_is_the_cpu_without_cuda(monkeypatch):
    machine(monkeypatch, 0)
    assert choose_device("auto") == torch.device("cpu")


def test_auto_is_cuda_where_there_is_one(monkeypatch):
    machine(monkeypatch, 1)
    asked = []
    monkeypatch.setattr(torch, "empty", lambda size, device: asked.append(device) or torch.zeros(size))
    choose_device("auto")
    assert asked == ["cuda"]


def test_a_device_that_cannot_be_written_to_is_one_sentence(monkeypatch):
    machine(monkeypatch, 1)

    def fail(size, device):
        raise RuntimeError("CUDA error: out of memory\n" + "what else a library says\n" * 80)

    monkeypatch.setattr(torch, "empty", fail)
    with pytest.raises(CapabilityError) as caught:
        choose_device("auto")
    assert "CUDA error: out of memory" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["mps", "gpu", "meta", "xpu", "vulkan", "privateuseone", "", "cuda:-1", "cuda:x", "CPU", "x" * 9999]
)
def test_others_are_one_sentence_with_the_cure(name, monkeypatch):
    machine(monkeypatch, 1)
    with pytest.raises(CapabilityError, match=r"device=.*'cpu', 'cuda' or 'auto'") as caught:
        choose_device(name)
    assert len(str(caught.value)) < 300 and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "count", "built", "found"),
    [
        ("cuda", 0, None, "is built without CUDA"),
        ("cuda", 0, "13.0", "finds 0 CUDA devices"),
        ("cuda:7", 1, "13.0", "finds 1 CUDA device "),
        ("cuda:2", 2, "13.0", "finds 2 CUDA devices"),
    ],
)
def test_a_cuda_device_that_is_not_there(name, count, built, found, monkeypatch):
    machine(monkeypatch, count, built)
    with pytest.raises(CapabilityError, match=f"device='{name}' cannot be used here: this PyTorch {found}.*'cpu'"):
        choose_device(name)

"""A matrix that a file holds as bytes is one tensor to its reader; scales that belong to nothing are an error."""

import pytest
import torch

from lab.smollm2.companions import rounded_matrices
from outdraft.options.errors import ModelLoadError
from outdraft.weights.safetensors import SINGLE, TensorStore, save_tensors
from outdraft.weights.stored_bytes import SCALES


@pytest.fixture
def whole():
    torch.manual_seed(0)
    return {"w": torch.randn(256, 512) * 0.1, "small": torch.randn(4, 32), "ids": torch.arange(7)}


def test_a_reader_sees_one_matrix_in_bfloat16(tmp_path, whole):
    save_tensors(rounded_matrices(whole), tmp_path / SINGLE)
    store = TensorStore(tmp_path)
    assert sorted(store) == ["ids", "small", "w"] and len(store) == 3 and "w" + SCALES not in store
    assert store.dtype_name("w") == "BF16" and store.shape("w") == (256, 512)
    assert torch.equal(store["small"], whole["small"]) and torch.equal(store["ids"], whole["ids"])
    off = (store["w"].float() - whole["w"]).abs()
    largest = whole["w"].unflatten(1, (-1, 32)).abs().amax(2).repeat_interleave(32, 1)
    assert (off <= largest * (0.51 / 127 + 2**-8)).all() and off.max() > 0
    assert (tmp_path / SINGLE).stat().st_size < 0.6 * 2 * whole["w"].numel()


def test_rounded_again_it_has_nearly_the_same_integers(tmp_path, whole):
    once = rounded_matrices(whole)
    save_tensors(once, tmp_path / SINGLE)
    again = rounded_matrices({"w": TensorStore(tmp_path)["w"]})
    off = (again["w"].int() - once["w"].int()).abs()
    assert off.max() <= 1 and off.float().mean() < 0.02


def test_a_group_of_zeros_stays_zero(tmp_path):
    save_tensors(rounded_matrices({"w": torch.zeros(256, 512)}), tmp_path / SINGLE)
    assert torch.equal(TensorStore(tmp_path)["w"], torch.zeros(256, 512, dtype=torch.bfloat16))


@pytest.mark.parametrize("change", ["lone", "shape", "dtype", "floats"])
def test_scales_of_nothing_are_refused(tmp_path, whole, change):
    tensors = rounded_matrices(whole)
    if change == "lone":
        del tensors["w"]
    elif change == "floats":
        tensors["w"] = whole["w"]
    else:
        scales = tensors["w" + SCALES]
        tensors["w" + SCALES] = scales[:, 1:] if change == "shape" else scales.float()
    save_tensors(tensors, tmp_path / SINGLE)
    with pytest.raises(ModelLoadError, match=r"w\.byte_scales.* must hold the scales"):
        TensorStore(tmp_path)

"""The lazy store: names, shapes and types from headers, tensors when asked for."""

import json

import pytest
import torch
from safetensors.torch import save_file

from outdraft.models.files.load import require_filled
from outdraft.options.errors import ModelLoadError
from outdraft.weights.hub import resolve
from outdraft.weights.safetensors import TensorStore, find_missing, save_tensors


def test_a_single_file(tmp_path):
    tensors = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(4, dtype=torch.bfloat16)}
    save_tensors(tensors, tmp_path / "model.safetensors")
    store = TensorStore(tmp_path)
    assert sorted(store) == ["a", "b"] and len(store) == 2 and "a" in store and "c" not in store
    assert store.shape("a") == (2, 3) and store.dtype_name("b") == "BF16"
    assert torch.equal(store["a"], tensors["a"])


def test_views_and_shared_memory_are_saved(tmp_path):
    whole = torch.arange(12.0).view(3, 4)
    save_tensors({"t": whole.t(), "same": whole}, tmp_path / "model.safetensors")
    assert torch.equal(TensorStore(tmp_path)["t"], whole.t())


def test_shards_are_one_store(tmp_path):
    save_file({"a": torch.zeros(1)}, tmp_path / "x.safetensors")
    save_file({"b": torch.ones(1)}, tmp_path / "y.safetensors")
    table = {"weight_map": {"a": "x.safetensors", "b": "y.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(table))
    assert float(TensorStore(tmp_path)["b"]) == 1.0


def test_a_single_file_wins_over_a_stale_index(tmp_path):
    save_file({"a": torch.zeros(1)}, tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"z": "gone.safetensors"}}')
    assert list(TensorStore(tmp_path)) == ["a"]


def write_shards(place, table: dict[str, str], **shards: dict[str, torch.Tensor]) -> None:
    """Files of these tensors, and an index that places tensors so."""
    for name, tensors in shards.items():
        save_file(tensors, place / f"{name}.safetensors")
    (place / "model.safetensors.index.json").write_text(json.dumps({"weight_map": table}))


@pytest.mark.parametrize("of", ["x", "y"])
def test_the_index_decides_between_two_copies(tmp_path, caplog, of):
    tensors = {"a": torch.full((1,), 3.0)}, {"a": torch.full((1,), 5.0), "more": torch.zeros(1)}
    write_shards(
        tmp_path,
        {"a": f"{of}.safetensors", "b": "x.safetensors", "c": "y.safetensors"},
        x={**tensors[0], "b": torch.zeros(1)},
        y={**tensors[1], "c": torch.zeros(1)},
    )
    store = TensorStore(tmp_path)
    assert float(store["a"]) == {"x": 3.0, "y": 5.0}[of] and sorted(store) == ["a", "b", "c"]
    assert store.copies == ["a", "more"]
    assert len(caplog.messages) == 1 and "2 tensors" in caplog.text and "a, more" in caplog.text


def test_a_file_or_tensor_that_the_index_promises_is_missed_by_name(tmp_path):
    write_shards(tmp_path, {"a": "x.safetensors", "b": "gone.safetensors"}, x={"a": torch.zeros(1)})
    with pytest.raises(ModelLoadError, match=r"gone\.safetensors"):
        TensorStore(tmp_path)
    write_shards(tmp_path, {"a": "x.safetensors", "b": "x.safetensors"}, x={"a": torch.zeros(1)})
    with pytest.raises(ModelLoadError, match=r"'b' but x\.safetensors lacks it"):
        TensorStore(tmp_path)


def test_a_name_that_no_file_can_have_is_missed_too(tmp_path):
    write_shards(tmp_path, {"a": "x" * 5000}, x={"a": torch.zeros(1)})
    with pytest.raises(ModelLoadError, match=r"1 of 1 shards that are not there \(x{77}\.\.\.\)"):
        TensorStore(tmp_path)
    assert find_missing(tmp_path) == f"1 of its weight files ({'x' * 77}...)"


@pytest.mark.parametrize("place", ["../x.safetensors", "/x.safetensors", "sub/../../x.safetensors"])
def test_an_index_names_files_of_its_directory_only(tmp_path, place):
    write_shards(tmp_path, {"a": place}, x={"a": torch.zeros(1)})
    with pytest.raises(ModelLoadError, match="outside the directory"):
        TensorStore(tmp_path)


def test_an_index_beside_a_single_file_is_noted(tmp_path, caplog):
    save_file({"a": torch.zeros(1)}, tmp_path / "model.safetensors")
    write_shards(tmp_path, {"a": "x.safetensors"}, x={"a": torch.ones(1)})
    assert float(TensorStore(tmp_path)["a"]) == 0 and "index.json beside it is not" in caplog.text


def test_the_sentinel_names_what_is_empty(tmp_path):
    with pytest.raises(ModelLoadError, match=r"1 parameters hold NaN .*, e\.g\. b"):
        require_filled([("a", torch.ones(2)), ("b", torch.tensor([1.0, float("nan")]))], tmp_path)


def test_a_directory_resolves_to_itself(tmp_path):
    assert resolve(str(tmp_path)) == tmp_path


@pytest.mark.parametrize("name", ["/nowhere/at/all", "./x/y", "one-word", "a/b/c"])
def test_names_that_cannot_be_hub_names(name):
    with pytest.raises(ModelLoadError, match="not a directory"):
        resolve(name)

"""Pickles of others: tensors that a parameter can be filled with, and for anything else one error and little memory."""

import os
import pickle
import random
import zipfile
from pathlib import Path

import pytest
import torch

from outdraft.options.errors import ModelLoadError
from outdraft.weights.pickled import read_pickled
from outdraft.weights.renamed import open_tensors
from outdraft.weights.safetensors import INDEX, SINGLE, save_tensors

pytestmark = pytest.mark.filterwarnings("ignore")  # what PyTorch says of old forms of its own
SOUND = {"a.weight": torch.arange(12.0).view(3, 4), "a.bias": torch.zeros(4)}
STRANGE = {
    "sparse": lambda: torch.zeros(3, 4).to_sparse(),
    "quantized": lambda: torch._empty_affine_quantized((3, 4), scale=0.1, zero_point=0, dtype=torch.qint8),
    "without numbers": lambda: torch.zeros(3, 4, device="meta"),
    "complex": lambda: torch.zeros(3, 4, dtype=torch.complex64),
}


def saved(place: Path, table=SOUND, **ways) -> Path:
    torch.save(table, place / "heads.pt", **ways)
    return place / "heads.pt"


def packed_again(path: Path, edit=lambda name, data: data, how=zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path) as file:
        records = [(one.filename, file.read(one)) for one in file.infolist()]
    with zipfile.ZipFile(path, "w", how) as file:
        for name, data in records:
            file.writestr(name, edit(name, data))
    return path


@pytest.mark.parametrize("zipped", [True, False])
def test_tensors_of_both_forms(zipped, tmp_path):
    found = read_pickled(saved(tmp_path, _use_new_zipfile_serialization=zipped))
    assert found.keys() == SOUND.keys() and all(torch.equal(found[name], SOUND[name]) for name in SOUND)


@pytest.mark.parametrize("kind", STRANGE)
def test_what_fills_no_parameter_is_named(kind, tmp_path):
    with pytest.raises(ModelLoadError, match=rf"'a.weight' is {kind}.*dense"):
        read_pickled(saved(tmp_path, {**SOUND, "a.weight": STRANGE[kind]()}))


def test_compressed_records_are_refused_before_any_is_unpacked(tmp_path, monkeypatch):
    """Four gigabytes of zeros are four megabytes on the disk."""
    path = packed_again(saved(tmp_path), how=zipfile.ZIP_DEFLATED)
    monkeypatch.setattr(torch, "load", lambda *given, **ways: pytest.fail("it was unpacked"))
    with pytest.raises(ModelLoadError, match="compressed"):
        read_pickled(path)


class Code:
    def __reduce__(self):
        return os.getcwd, ()


def test_the_reason_is_given_without_pytorchs_advice(tmp_path):
    with pytest.raises(ModelLoadError) as raised:
        read_pickled(saved(tmp_path, torch.nn.Linear(2, 2)))
    said = str(raised.value)
    assert "(Unsupported global: GLOBAL torch.nn.modules.linear.Linear was not an allowed global by default)" in said
    assert "\x1b" not in said and "trust" not in said


@pytest.mark.parametrize("name", [SINGLE, INDEX])
def test_a_pickle_is_not_read_beside_safetensors(name, tmp_path):
    """Not in place of a shard that is missing either."""
    torch.save(SOUND, tmp_path / "pytorch_model.bin")
    assert set(open_tensors(tmp_path)) == set(SOUND)
    if name == SINGLE:
        save_tensors({"b": torch.zeros(1)}, tmp_path / name)
        assert set(open_tensors(tmp_path)) == {"b"}
    else:
        (tmp_path / name).write_text('{"weight_map": {"a.weight": "model-00001-of-00002.safetensors"}}')
        with pytest.raises(ModelLoadError, match=r"names 1 of 1 shards that are not there \(model-00001"):
            open_tensors(tmp_path)


@pytest.mark.parametrize("table", [{**SOUND, "x": Code()}, [1, 2], {1: torch.zeros(1)}, {"a": SOUND}, torch.zeros(2)])
def test_what_is_no_table_of_tensors(table, tmp_path):
    with pytest.raises(ModelLoadError, match="holds"):
        read_pickled(saved(tmp_path, table))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        pickle.dumps(Code()),
        b"\x80\x02" + b"(" * 100_000 + b"t" * 100_000 + b".",
        b"PK\x05\x06\x05" + bytes(17),  # an archive in several parts
    ],
)
def test_what_is_no_such_file(data, tmp_path):
    (tmp_path / "heads.pt").write_bytes(data)
    with pytest.raises(ModelLoadError):
        read_pickled(tmp_path / "heads.pt")


@pytest.mark.parametrize(
    "edit",
    [
        lambda name, data: data[:3] if "/data/" in name else data,
        lambda name, data: b"\x80\x02}q\x00X\x01\x00\x00\x00ah\x00s." if name.endswith("data.pkl") else data,
        lambda name, data: b"\x80\x02\x8b\xff\xff\xff\x7f" if name.endswith("data.pkl") else data,
    ],
)
def test_damaged_records(edit, tmp_path):
    with pytest.raises(ModelLoadError):
        read_pickled(packed_again(saved(tmp_path), edit))


def test_damaged_bytes_are_read_or_refused(tmp_path):
    path = saved(tmp_path)
    data, refused = path.read_bytes(), 0
    for number in range(300):
        dice, made = random.Random(number), bytearray(data)
        for _ in range(dice.choice((1, 3, 20))):
            made[dice.randrange(len(made)) if number % 3 else -1 - dice.randrange(600)] = dice.randrange(256)
        path.write_bytes(made[: dice.randrange(len(made))] if number % 5 == 0 else made)
        try:
            read_pickled(path)
        except ModelLoadError:
            refused += 1
    assert 100 < refused < 300


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "heads.pt")
    with pytest.raises(ModelLoadError, match="pipe"):
        read_pickled(tmp_path / "heads.pt")

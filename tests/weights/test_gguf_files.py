"""Split GGUF files, read as one whichever part is named; projectors; and files that only look like parts or models."""

import logging
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from weights.gguf_files import finish, llama_cpp_tensors, write_gguf
from weights.test_gguf import fails, logits_of, model_of, written

from outdraft.bench.subject import digest_weights
from outdraft.engine.assembly import remembered
from outdraft.models.files.load import load_model
from outdraft.models.remake import packed_cache
from outdraft.models.target.open_network import _size
from outdraft.options.errors import ModelLoadError
from outdraft.weights import places
from outdraft.weights.gguf import GgufFile
from outdraft.weights.gguf_files import part_paths
from outdraft.weights.hub import resolve


def part(folder: Path, number: int, count: int = 3) -> Path:
    return folder / f"m-{number:05}-of-{count:05}.gguf"


@pytest.fixture
def split(tmp_path):
    """A model whose first part has the metadata and no tensor, as llama.cpp's `--no-tensor-first-split` makes them."""
    model = model_of()
    tensors = list(llama_cpp_tensors(model).items())
    write_gguf(model, tmp_path / "whole.gguf")
    write_part(tmp_path, 1, {}, total=len(tensors))
    write_part(tmp_path, 2, dict(tensors[:5]), total=len(tensors))
    write_part(tmp_path, 3, dict(tensors[5:]), total=len(tensors))
    return tmp_path, model


def write_part(folder, number, tensors, *, total, count=3, **changed):
    """Through the package's own writer; the first part has the whole file's metadata."""
    path = part(folder, number)
    writer = gguf.GGUFWriter(path, "llama")
    if number == 1:
        for field in gguf.GGUFReader(folder / "whole.gguf").fields.values():
            if not field.name.startswith(("GGUF.", "general.architecture")):
                writer.add_key_value(field.name, field.contents(), field.types[0])
    said = {"split.no": number - 1, "split.count": count, "split.tensors.count": total} | changed
    for key, value in said.items():
        writer.add_uint16(key, value)
    for name, array in tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(array))
    finish(writer)
    return path


@pytest.mark.parametrize("named", [1, 2, 3])
def test_parts_are_one_model_whichever_is_named(split, named):
    folder, model = split
    assert torch.equal(logits_of(load_model(part(folder, named))), logits_of(model))
    assert resolve(str(part(folder, named))) == part(folder, 1)
    file, whole = GgufFile(part(folder, named)), GgufFile(folder / "whole.gguf")
    assert file.path == part(folder, 1) and sorted(file.names()) == sorted(whole.names())
    assert set(file.keys("")) == set(whole.keys("")) | {"split.no", "split.count", "split.tensors.count"}


@pytest.mark.parametrize("small_first", [True, False])
def test_parts_by_the_packages_own_splitting(tmp_path, small_first):
    model = model_of()
    write_gguf(model, tmp_path / "m.gguf", split_max_tensors=7, small_first_shard=small_first)
    parts = sorted(tmp_path.glob("m-*.gguf"))
    assert len(parts) > 2 and not (tmp_path / "m.gguf").exists()
    assert torch.equal(logits_of(load_model(parts[-1])), logits_of(model))


def test_what_is_known_of_a_model_is_of_all_its_parts(split):
    folder, _ = split
    before = digest_weights(part(folder, 1))
    paths = [part(folder, number) for number in (1, 2, 3)]
    assert _size(paths[0]) == sum(path.stat().st_size for path in paths)
    assert packed_cache._files(paths[0]) == paths
    assert [name for name, *_ in remembered._files(paths[0])] == [path.name for path in paths]
    data = bytearray(part(folder, 3).read_bytes())
    data[-1] ^= 1
    part(folder, 3).write_bytes(data)
    assert digest_weights(part(folder, 1)) != before


def test_an_absent_part(split):
    folder, _ = split
    part(folder, 3).unlink()
    fails(part(folder, 2), "one of 3 parts", "1 are not beside it", "m-00003-of-00003.gguf", "download")


def test_a_damaged_part_is_named(split):
    folder, _ = split
    part(folder, 2).write_bytes(part(folder, 2).read_bytes()[:-40])
    fails(part(folder, 1), "m-00002-of-00003.gguf", "cut short")


def test_parts_that_do_not_fit(split):
    folder, model = split
    tensors = list(llama_cpp_tensors(model).items())
    total = len(tensors)
    last = part(folder, 3)
    for changed in ({"split.no": 1}, {"split.count": 4}, {"split.tensors.count": total + 1}):
        write_part(folder, 3, dict(tensors[5:]), total=total, **changed)
        fails(part(folder, 1), last.name, "split.no", "part 3 of 3", "all parts of one model")
    write_part(folder, 3, dict(tensors[4:]), total=total)
    fails(part(folder, 1), last.name, repr(tensors[4][0]), "and so has m-00002-of-00003.gguf")
    write_part(folder, 3, dict(tensors[6:]), total=total)
    fails(part(folder, 1), f"split.tensors.count={total}", f"{total - 1} tensors")


def test_one_file_with_the_name_of_parts_or_their_keys(tmp_path):
    model = model_of()
    alone = write_gguf(model, tmp_path / "m-00001-of-00001.gguf")
    assert torch.equal(logits_of(load_model(alone)), logits_of(model))
    merged = write_gguf(model, tmp_path / "merged.gguf", metadata=lambda w: w.add_uint16("split.count", 0))
    assert torch.equal(logits_of(load_model(merged)), logits_of(model))  # as llama.cpp's --merge leaves it
    fails(written(tmp_path / "d.gguf", "llama", lambda w: w.add_uint16("split.count", 3)), "3 parts", "--merge")
    fails(
        written(tmp_path / "e.gguf", "llama", lambda w: w.add_string("split.count", "x")), "split.count='x'", "number"
    )
    for name in ("m-00000-of-00003.gguf", "m-00004-of-00003.gguf", "m-1-of-3.gguf"):
        assert part_paths(tmp_path / name) == [tmp_path / name]


def test_a_projector_is_named_where_it_lies_beside_a_model_and_refused_by_itself(tmp_path, caplog):
    caplog.set_level(logging.INFO, "outdraft.notes")
    written(tmp_path / "mmproj-m-f16.gguf", "clip", lambda w: None)  # of an earlier converter: no general.type
    path = write_gguf(model_of(), tmp_path / "m.gguf")
    for _ in range(2):
        load_model(path)
    fails(tmp_path / "mmproj-m-f16.gguf", "general.type='mmproj'", "text model")
    (line,) = [record.getMessage() for record in caplog.records if "mmproj" in record.getMessage()]
    assert "mmproj-m-f16.gguf beside it" in line and str(path) in line
    assert resolve(str(tmp_path)) == path  # the directory's only model


def test_a_directory_of_several_models_lists_them(tmp_path):
    for name in ("a.gguf", "b.gguf"):
        write_gguf(model_of(), tmp_path / name)
    with pytest.raises(ModelLoadError, match=r"has 2 models \(a\.gguf, b\.gguf\): name one"):
        resolve(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert resolve(tmp_path) == resolve(str(tmp_path)) == tmp_path


def test_a_gguf_file_is_known_by_its_first_bytes(tmp_path):
    path = write_gguf(model_of(), tmp_path / "blob")
    assert resolve(str(path)) == resolve(path) == path and load_model(path).config.num_layers
    path.write_bytes(b"GGML")
    fails(path, "blob is a file", ".gguf file")
    assert not places.is_gguf(tmp_path / "absent")

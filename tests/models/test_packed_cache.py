"""Packed weights that are kept have the bits of those packed now; what is stale or damaged is made again."""

import json
import os
from dataclasses import replace

import pytest
import torch
from kernels.test_stack import make
from models.test_streamed import equal, run, save
from safetensors.torch import load_file, save_file

from outdraft.kernels.library import library, library_file
from outdraft.models.files.load import open_weights, save_model
from outdraft.models.networks.native import NativeDecoder
from outdraft.models.remake import native_files, packed_cache
from outdraft.models.remake.packed_cache import kept_file
from outdraft.models.remake.pieces import Pieces
from outdraft.models.target.open_network import load_network
from outdraft.nn.quant import QuantConfig
from outdraft.options.errors import ConfigError
from outdraft.testing.tiny import random_decoder, tiny_config

pytestmark = pytest.mark.skipif(library() is None, reason="the native kernels are not built here (no C++ compiler)")
INT8 = QuantConfig(bits=8, keep=())
EVERY = torch.arange(61)  # ids


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """A cache of the test's own, in which small models are kept too."""
    monkeypatch.setenv("OUTDRAFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(packed_cache, "SMALLEST", 0)
    return tmp_path / "cache/packed"


def kept(cache):
    return sorted(cache.glob("*"))


def never_kept(directory, monkeypatch, **how):
    """The model, packed in memory."""
    with monkeypatch.context() as patch:
        patch.setenv("OUTDRAFT_CACHE", "off")
        return load_network(directory, **how)


@pytest.mark.parametrize("shape", ["llama", "qwen2", "qwen3", "odd vocabulary", "int8", "mixed", "int4"])
def test_a_mapped_model_has_the_bits_of_one_in_memory(shape, tmp_path, own_cache, monkeypatch):
    decoder = make(shape)
    if shape in ("qwen2", "qwen3"):
        decoder.config = replace(decoder.config, architecture=shape)
    save_model(decoder, tmp_path / "model")
    inside = never_kept(tmp_path / "model", monkeypatch)
    assert not own_cache.exists()
    made, found = load_network(tmp_path / "model"), load_network(tmp_path / "model")
    for mapped in (made, found):
        assert isinstance(mapped, NativeDecoder) and mapped.stack.lender is not None
        assert equal(run(inside, taps=(0, 1, 2)), run(mapped, taps=(0, 1, 2)))
        assert mapped.num_parameters == inside.num_parameters and mapped.pass_bytes == inside.pass_bytes
        assert torch.equal(inside.embed(EVERY, EVERY), mapped.embed(EVERY, EVERY))
    assert len(kept(own_cache)) == 1


@pytest.mark.parametrize("kind", ["BF16", "Q8_0", "Q4_0"])
def test_a_gguf_file_is_kept_and_mapped(kind, tmp_path, own_cache, monkeypatch):
    """Floats, and integers of our grid; another content is another packed file."""
    gguf = pytest.importorskip("gguf")
    from weights.gguf_files import write_gguf

    file = tmp_path / "model.gguf"
    for count, seed in enumerate((1, 2), 1):
        config = tiny_config(layers=2, hidden=64, inner=96, heads=2, kv_heads=1)
        decoder = random_decoder(config, dtype=torch.bfloat16, exact=False, seed=seed)
        write_gguf(decoder, file, gguf.GGMLQuantizationType[kind])
        inside = never_kept(file, monkeypatch, dtype="bfloat16")
        made, found = load_network(file, dtype="bfloat16"), load_network(file, dtype="bfloat16")
        for mapped in (made, found):
            assert isinstance(mapped, NativeDecoder) and mapped.stack.lender is not None
            assert equal(run(inside), run(mapped)) and torch.equal(
                inside.embed(EVERY, EVERY), mapped.embed(EVERY, EVERY)
            )
        assert (found.config.quant is not None) == (kind in ("Q8_0", "Q4_0"))
        assert len(kept(own_cache)) == count


@pytest.mark.parametrize("tie", [False, True])
def test_a_rounded_model_is_kept_rounded(tie, tmp_path, own_cache, monkeypatch):
    directory = save(tmp_path, tie=tie)
    rounding = {"rounding": lambda config, native: INT8}
    whole, inside = load_network(directory), never_kept(directory, monkeypatch, **rounding)
    small = [load_network(directory, **rounding) for _ in range(2)]
    assert len(kept(own_cache)) == 2 and small[1].config.quant is INT8
    assert all(equal(run(inside), run(one)) for one in small) and not equal(run(whole), run(inside))


def test_what_it_was_made_from_is_looked_at(tmp_path, own_cache, monkeypatch):
    directory = save(tmp_path)
    load_network(directory)
    weights = directory / "model.safetensors"
    times = weights.stat().st_mtime_ns
    data = bytearray(weights.read_bytes())
    data[-2:] = b"\x00\x3f"
    weights.write_bytes(data)
    os.utime(weights, ns=(times, times))  # as a tool leaves it that keeps times
    changed = load_network(directory)
    assert equal(run(changed), run(never_kept(directory, monkeypatch))) and len(kept(own_cache)) == 2
    other = tmp_path / "other.so"
    other.write_bytes(library_file().read_bytes() + b"another build")
    monkeypatch.setattr(packed_cache, "library_file", lambda: other)
    load_network(directory)
    assert len(kept(own_cache)) == 3


@pytest.mark.parametrize("place", ["layer", "head", "table", "cut", "empty", "header"])
def test_a_damaged_file_is_made_again(place, tmp_path, own_cache, monkeypatch, caplog):
    directory = save(tmp_path)
    load_network(directory)
    file = kept_file(Pieces(stored=open_weights(directory)))
    data = bytearray(file.path.read_bytes())
    whole = bytes(data)
    if place in ("cut", "empty"):
        data = data[: len(data) // 2 if place == "cut" else 0]
    else:
        parts = {"layer": file.units[3], "head": file.units[-1], "table": file.embedding, "header": file.units[0]}
        part = parts[place]
        data[part.offset + (0 if place == "header" else part.size - 100)] ^= 1
    file.path.write_bytes(data)
    again = load_network(directory)
    assert "damaged" in caplog.text and file.path.read_bytes() == whole
    assert equal(run(again), run(never_kept(directory, monkeypatch)))


def test_where_nothing_can_be_kept_it_loads_all_the_same(tmp_path, own_cache, monkeypatch):
    directory = save(tmp_path)
    wanted = run(never_kept(directory, monkeypatch))
    (tmp_path / "cache").write_text("in the way")
    assert equal(run(load_network(directory)), wanted)
    (tmp_path / "cache").unlink()
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 10}))
    assert equal(run(load_network(directory)), wanted) and not kept(own_cache)


@pytest.mark.parametrize("trouble", ["read-only", "gone"])
def test_a_file_that_cannot_be_used_is_not_needed(trouble, tmp_path, own_cache, monkeypatch):
    directory = save(tmp_path)
    wanted = run(load_network(directory))
    (place,) = kept(own_cache)
    data = bytearray(place.read_bytes())
    data[0] ^= 1
    place.write_bytes(data)
    found = kept_file(Pieces(stored=open_weights(directory)))

    def refuse(path, **how):
        raise PermissionError("a read-only file system")

    if trouble == "read-only":
        monkeypatch.setattr(type(place), "unlink", refuse)
    else:
        place.unlink()
    monkeypatch.setattr(native_files, "kept_file", lambda pieces: found)
    loaded = load_network(directory)
    assert loaded.stack.lender is None and equal(run(loaded), wanted)


def test_two_that_write_one_file_do_not_share_its_unfinished_one(tmp_path, own_cache, monkeypatch):
    pieces = Pieces(stored=open_weights(save(tmp_path)))
    write, names = packed_cache.write_packed, []

    def meanwhile(file, pieces):
        names.append(file.name)
        if len(names) == 1:  # as a thread, or a container whose process has the same number
            packed_cache.make_packed(packed_cache.place_of(pieces, cache=own_cache), pieces)
        write(file, pieces)

    monkeypatch.setattr(packed_cache, "write_packed", meanwhile)
    kept_file(pieces)
    assert len(set(names)) == 2 and len(kept(own_cache)) == 1


@pytest.mark.parametrize("rounding", [None, INT8], ids=["whole", "rounded"])
@pytest.mark.parametrize("tie", [False, True])
def test_room_is_reckoned_by_what_is_written(tie, rounding, tmp_path, own_cache, monkeypatch):
    directory = save(tmp_path, tie=tie, vocab=2000)
    pieces = Pieces(stored=open_weights(directory), rounding=rounding)
    source = sum(file.stat().st_size for file in directory.glob("*.safetensors"))
    expected = packed_cache.packed_bytes(pieces)
    assert expected > source if rounding is None and tie else rounding is None or expected < source
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 2 * expected - 2}))
    assert kept_file(pieces) is None
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": expected - 1}))
    with pytest.raises(OSError, match="no space"):
        packed_cache.make_packed(packed_cache.place_of(pieces, cache=own_cache), pieces)
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 2 * expected}))
    assert kept_file(pieces).path.stat().st_size == pytest.approx(expected, rel=0.1)


def test_the_least_recently_used_make_room(tmp_path, own_cache, monkeypatch):
    for name in "abc":
        save(tmp_path / name)
        load_network(tmp_path / name / "model")
    files = {file.stat().st_size for file in kept(own_cache)}
    for age, file in enumerate(sorted(kept(own_cache), key=lambda file: file.stat().st_mtime_ns)):
        os.utime(file, ns=(age, age))
    load_network(tmp_path / "a/model")  # used now: b is the oldest
    oldest = min(kept(own_cache), key=lambda file: file.stat().st_mtime_ns)
    save(tmp_path / "d")
    monkeypatch.setenv("OUTDRAFT_CACHE_LIMIT", str(7 * max(files) // 2))
    load_network(tmp_path / "d/model")
    assert len(kept(own_cache)) == 3 and oldest not in kept(own_cache)
    monkeypatch.setenv("OUTDRAFT_CACHE_LIMIT", "10")
    save(tmp_path / "e")
    load_network(tmp_path / "e/model")
    assert len(kept(own_cache)) == 3
    monkeypatch.setenv("OUTDRAFT_CACHE_LIMIT", "much")
    with pytest.raises(ConfigError, match="OUTDRAFT_CACHE_LIMIT='much' is no size"):
        load_network(tmp_path / "e/model")


def test_small_models_and_abandoned_files(tmp_path, own_cache, monkeypatch):
    directory = save(tmp_path)
    monkeypatch.setattr(packed_cache, "SMALLEST", 1 << 30)
    load_network(directory)
    assert not own_cache.exists()
    monkeypatch.setattr(packed_cache, "SMALLEST", 0)
    own_cache.mkdir(parents=True)
    for name, age in (("old.1.part", 1), ("new.2.part", 2**62)):
        (own_cache / name).write_text("")
        os.utime(own_cache / name, ns=(age, age))
    load_network(directory)
    assert [file.suffix for file in kept(own_cache)] == [".packed", ".part"]


def test_another_shard_index_is_another_packed_file(tmp_path, own_cache, monkeypatch):
    """The same files may hold two copies of a tensor; the index says which is meant."""
    place = tmp_path / "model"
    save_model(make("llama"), place)
    whole = load_file(place / "model.safetensors")
    (place / "model.safetensors").unlink()
    for name, scale in (("a", 1), ("b", 2)):
        save_file({one: tensor * scale for one, tensor in whole.items()}, place / f"{name}.safetensors")
    seen = []
    for name in ("a", "b", "a"):
        other = next(iter(whole))
        table = {**dict.fromkeys(whole, f"{name}.safetensors"), other: "a.safetensors"}
        (place / "model.safetensors.index.json").write_text(json.dumps({"weight_map": table}))
        os.utime(place / "model.safetensors.index.json", ns=(1, len(name) + ord(name)))
        seen.append(run(load_network(place)))
        assert equal(seen[-1], run(never_kept(place, monkeypatch)))
    assert len(kept(own_cache)) == 2 and equal(seen[0], seen[2]) and not equal(seen[0], seen[1])


def test_the_same_files_read_otherwise_are_another_packed_file(tmp_path):
    """A later version may understand a config.json otherwise, a head that is stored beside a tie for one."""
    save_model(make("llama"), tmp_path / "model")
    stored = open_weights(tmp_path / "model")
    other = replace(stored, config=replace(stored.config, tie_embeddings=not stored.config.tie_embeddings))
    places = {packed_cache.place_of(Pieces(stored=one), cache=tmp_path) for one in (stored, other)}
    assert len(places) == 2


def test_what_was_freed_goes_back_before_weights_are_mapped(tmp_path, own_cache, monkeypatch):
    save_model(make("llama"), tmp_path / "model")
    order = []
    honest = native_files._mapped
    for each in (native_files, packed_cache):
        monkeypatch.setattr(each, "give_back_freed", lambda name=each.__name__: order.append(name.rpartition(".")[2]))
    monkeypatch.setattr(native_files, "_mapped", lambda *how: (order.append("mapped"), honest(*how))[1])
    load_network(tmp_path / "model"), load_network(tmp_path / "model")
    assert order == ["native_files", "packed_cache", "mapped", "native_files", "mapped"]

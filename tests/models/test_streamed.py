"""A decoder that is read from disk in every pass has the bits of the same decoder in memory, and holds what it may."""

import ctypes
import mmap
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from kernels.test_stack import make

from outdraft.cache.config import CacheConfig
from outdraft.core.skip import Skip
from outdraft.core.target import after_attention
from outdraft.kernels.library import library
from outdraft.models.files.load import open_weights, save_model
from outdraft.models.networks.native import NativeDecoder
from outdraft.models.remake.packed_cache import packed_file
from outdraft.models.remake.pieces import Pieces
from outdraft.models.remake.quantize import quantize_decoder
from outdraft.models.remake.streamed import load_streamed
from outdraft.models.target.open_network import load_network, open_model
from outdraft.nn.cached import CachedContext
from outdraft.nn.quant import QuantConfig
from outdraft.nn.segment import Segment
from outdraft.options.errors import CapabilityError, ConfigError, ModelLoadError
from outdraft.testing.tiny import random_decoder, tiny_config

pytestmark = pytest.mark.skipif(library() is None, reason="the native kernels are not built here (no C++ compiler)")

SKIP = Skip(attention=frozenset({1}), mlp=frozenset({1, 4}))
MIDDLE = after_attention(2)
ALL_OF_TWO = Skip(attention=frozenset({0, 5}), mlp=frozenset({0, 5}))


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def save(tmp_path, **changes):
    """A directory with a model of six layers."""
    config = tiny_config(layers=6, hidden=64, inner=96, heads=2, kv_heads=1, **changes)
    save_model(random_decoder(config, dtype=torch.bfloat16, exact=False), tmp_path / "model")
    return tmp_path / "model"


def streamed_from(directory, memory, dtype=None):
    """The model of a directory, read from disk in every pass."""
    return load_streamed(open_model(directory, dtype, torch.device("cpu"), streams=True).pieces, memory)


def least(directory) -> int:
    """The smallest budget that is enough."""
    sizes = [-(-unit.size // 4096) * 4096 for unit in packed_file(Pieces(stored=open_weights(directory))).units]
    return min(2 * max(sizes), 2 * max(sizes[:-1]) + sizes[-1])


def run(network, head=True, **how):
    """Hidden states, taps and logits of nine rows in two passes over one cache."""
    config = network.config
    cache = CacheConfig().build(config.num_layers, config.num_kv_heads, config.head_dim, network.dtype, "cpu", 64)
    cache.add(0)
    found = []
    for rows in (range(5), range(5, 9)):
        places = torch.tensor(rows)
        h = network.embed(places + 3, places)
        cache.reserve(0, len(rows))
        context = CachedContext(cache, [Segment(seq=0, start=0, stop=len(rows), base=rows[0])], exact=True)
        out = network.run(h, places, context, **how)
        cache.commit(0, range(len(rows)))
        found += [out.hidden, network.logits(out.hidden), *out.taps.values()]
        found += [network.head(out.hidden)] if head else []
    return found


def equal(ours, theirs) -> bool:
    return len(ours) == len(theirs) and all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("shape", ["llama", "qwen2", "qwen3", "odd vocabulary", "int8", "mixed", "int4"])
def test_every_shape_has_the_bits_of_the_resident_model(shape, tmp_path):
    decoder = make(shape)
    if shape in ("qwen2", "qwen3"):
        decoder.config = replace(decoder.config, architecture=shape)
    save_model(decoder, tmp_path / "model")
    whole = load_network(tmp_path / "model")
    assert isinstance(whole, NativeDecoder)
    streamed = streamed_from(tmp_path / "model", least(tmp_path / "model"))
    assert streamed.units.streamed or shape == "mixed"  # where two of the larger layer fit, one of each does too
    assert streamed.units.held_bytes <= least(tmp_path / "model")
    assert equal(run(whole, taps=(0, 1, 2)), run(streamed, taps=(0, 1, 2)))


@pytest.mark.parametrize("bits", [4, 8])
def test_wide_groups_keep_their_scales(bits, tmp_path):
    config = tiny_config(layers=3, hidden=128, inner=128, heads=4, kv_heads=2)
    decoder = random_decoder(config, dtype=torch.bfloat16, exact=False)
    save_model(quantize_decoder(decoder, QuantConfig(bits=bits, group_size=128, keep=())), tmp_path / "model")
    whole, streamed = load_network(tmp_path / "model"), streamed_from(tmp_path / "model", least(tmp_path / "model"))
    assert streamed.units.streamed and equal(run(whole), run(streamed))


@pytest.mark.parametrize("changes", [{}, {"tie": True}, {"architecture": "mistral"}], ids=str)
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_any_budget_any_layers(tmp_path, share, changes):
    directory = save(tmp_path, **changes)
    whole = load_network(directory)
    small, all_of_it = (
        least(directory),
        sum(-(-u.size // 4096) * 4096 for u in packed_file(Pieces(stored=open_weights(directory))).units),
    )
    budget = int(small + share * (all_of_it - small))
    streamed = streamed_from(directory, budget)
    assert streamed.units.held_bytes <= budget and (share < 1) == bool(streamed.units.streamed)
    assert streamed.num_parameters == whole.num_parameters
    h = torch.randn(2, whole.config.hidden_size)
    assert torch.equal(streamed.norm(h), whole.norm(h))
    for how in (
        {},
        {"stop": 2},
        {"start": 3},
        {"skip": SKIP, "taps": (3, after_attention(2))},
        {"skip": ALL_OF_TWO},
        {},
    ):
        assert equal(run(whole, **how), run(streamed, **how)), how


def test_a_pass_reads_what_is_not_held_and_nothing_else(tmp_path):
    directory = save(tmp_path)
    streamed = streamed_from(directory, least(directory))

    def num_read() -> int:
        streamed.units._ahead[2].result()  # what is under way
        return streamed.units.file.num_read

    run(streamed, head=False)
    before = num_read()
    for _ in range(4):
        run(streamed, head=False)
    assert num_read() - before == 4 * 2 * streamed.units.round_bytes


def test_what_was_read_does_not_stay_in_the_page_cache(tmp_path):
    directory = save(tmp_path)
    streamed = streamed_from(directory, least(directory))
    if not streamed.units.file.is_direct:
        pytest.skip("no direct reads on this file system")
    run(streamed)
    path = streamed.units.file.path
    size = streamed.units.units[-1].offset
    with path.open("rb") as file, mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE) as view:
        pages = -(-size // mmap.PAGESIZE)
        held = (ctypes.c_ubyte * pages)()
        import numpy as np

        address = np.frombuffer(view, dtype=np.uint8).ctypes.data
        if ctypes.CDLL(None, use_errno=True).mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), held):
            pytest.skip(os.strerror(ctypes.get_errno()))
        assert sum(page & 1 for page in held) <= pages // 10


def test_the_packed_file_is_made_once_and_again_when_the_model_changes(tmp_path):
    directory = save(tmp_path)
    first = packed_file(Pieces(stored=open_weights(directory)))
    written = first.path.stat().st_ino
    assert packed_file(Pieces(stored=open_weights(directory))).path.stat().st_ino == written
    weights = directory / "model.safetensors"
    os.utime(weights, ns=(1, 1))
    assert packed_file(Pieces(stored=open_weights(directory))).path != first.path
    assert not list(first.path.parent.glob("*.part"))


def test_errors_name_what_does_not_fit(tmp_path, monkeypatch):
    directory = save(tmp_path)
    with pytest.raises(ConfigError, match=r"two layers .* give at least"):
        streamed_from(directory, 4096)
    with pytest.raises(CapabilityError, match="float32"):
        streamed_from(directory, 1 << 20, dtype="float32")
    packed = packed_file(Pieces(stored=open_weights(directory))).path
    packed.unlink()
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 10}))
    with pytest.raises(ModelLoadError, match="no space left"):
        streamed_from(directory, 1 << 20)
    assert not list(packed.parent.iterdir())


@pytest.mark.parametrize(
    ("what", "damaged"),
    [
        (b'{"units"', b'?"units"'),
        (b'"units"', b'"stinu"'),
        (b'"embedding"', b'"embodding"'),
        (b'"checksum"', b'"checkmus"'),
        (b'"units": [', b'"units": 7, "u": ['),
        (b'{"units"', b'{\xff"units"'),
        (b"", (1 << 62).to_bytes(8, "little")),
        (b"", b"\xff" * 8),
        (b"outdraft packed", b"outdraft pack"),
        (b'"offset": 0', b'"offset": 9999999999'),
    ],
    ids=[
        "no JSON",
        "no units",
        "no embedding",
        "no checksum",
        "not a list",
        "no text",
        "beyond the end",
        "beyond all",
        "no mark",
        "a unit beyond the end",
    ],
)
def test_a_damaged_index_is_named_and_the_file_made_again(what, damaged, tmp_path, caplog):
    """The end mark is whole; the index, or where it is said to begin, is not."""
    directory = save(tmp_path)
    packed = packed_file(Pieces(stored=open_weights(directory))).path
    whole = packed.read_bytes()
    at = whole.rindex(what) if what else len(whole) - 24
    packed.write_bytes(whole[:at] + damaged + whole[at + (len(what) or 8) :])
    assert packed_file(Pieces(stored=open_weights(directory))).path.read_bytes() == whole
    assert f"{packed.name} is no packed file, cut short or damaged" in caplog.text


def flip(packed, at):
    packed.path.chmod(0o644)
    with packed.path.open("rb+") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 0x40]))


def places(packed):
    """A byte of each unit, and the ends of the table."""
    units = [unit.offset + unit.size // 2 for unit in packed.units]
    return [*units, packed.embedding.offset, packed.embedding.offset + packed.embedding.size - 1]


def test_a_damaged_file_is_made_again_before_a_byte_of_it_is_used(tmp_path, caplog):
    directory = save(tmp_path)
    packed = packed_file(Pieces(stored=open_weights(directory)))
    whole, wanted = packed.path.read_bytes(), run(streamed_from(directory, least(directory)))
    for at in places(packed):
        flip(packed, at)
        assert equal(run(streamed_from(directory, least(directory))), wanted)
        assert packed.path.read_bytes() == whole and "it is made again" in caplog.text
        caplog.clear()


@pytest.mark.parametrize("cut", [8, 4096, -1])
def test_a_file_that_another_program_shortens_is_made_again(cut, tmp_path, caplog):
    directory = save(tmp_path)
    packed = packed_file(Pieces(stored=open_weights(directory)))
    whole, streamed = packed.path.read_bytes(), streamed_from(directory, least(directory))
    wanted = run(streamed)
    packed.path.chmod(0o644)
    os.truncate(packed.path, cut % packed.embedding.offset)
    assert equal(run(streamed), wanted) and packed.path.read_bytes() == whole
    assert "it is made again" in caplog.text


def test_a_file_that_another_program_writes_to_is_made_again(tmp_path):
    directory = save(tmp_path)
    packed = packed_file(Pieces(stored=open_weights(directory)))
    streamed = streamed_from(directory, least(directory))
    wanted = run(streamed)
    for at in places(packed):
        flip(packed, at)
        assert equal(run(streamed), wanted)


def test_a_table_is_judged_when_the_tick_of_its_last_write_is_over(tmp_path, monkeypatch):
    directory = save(tmp_path)
    packed = packed_file(Pieces(stored=open_weights(directory)))
    whole, wanted, slept = packed.path.read_bytes(), run(streamed_from(directory, least(directory))), []

    def sleep(seconds):
        """Meanwhile another program writes, once."""
        if not slept:
            flip(packed, packed.embedding.offset)
        slept.append(seconds)

    monkeypatch.setattr("outdraft.weights.direct.TICK", 60)
    monkeypatch.setattr("outdraft.weights.direct.sleep", sleep)
    assert equal(run(streamed_from(directory, least(directory))), wanted)
    assert slept and packed.path.read_bytes() == whole


def test_what_the_model_no_longer_is_cannot_be_made_again(tmp_path):
    """Nor is another model's file left under the name."""
    directory = save(tmp_path)
    packed = packed_file(Pieces(stored=open_weights(directory)))
    streamed = streamed_from(directory, least(directory))
    run(streamed)
    save_model(random_decoder(streamed.config, dtype=torch.bfloat16, exact=False, seed=9), directory)
    flip(packed, packed.embedding.offset)
    with pytest.raises(ModelLoadError, match=f"{packed.path.name} is damaged.*changed since: load the model again"):
        run(streamed)
    assert not packed.path.exists()


def test_a_damage_that_stays_is_named(tmp_path, monkeypatch):
    directory = save(tmp_path)
    packed = packed_file(Pieces(stored=open_weights(directory)))
    monkeypatch.setattr("outdraft.models.remake.streamed.remake_packed", lambda packed, pieces: None)
    flip(packed, packed.embedding.offset)
    with pytest.raises(ModelLoadError, match=f"{packed.path.name} is damaged in its embedding rows.*delete it"):
        streamed_from(directory, 1 << 20)


def test_a_packed_file_is_not_written_over(tmp_path):
    assert packed_file(Pieces(stored=open_weights(save(tmp_path)))).path.stat().st_mode & 0o777 == 0o444


def test_two_threads_may_ask_at_once(tmp_path):
    """Two engines over one streamed network: the buffers serve one pass at a time."""
    directory = save(tmp_path)
    streamed = streamed_from(directory, least(directory))
    wanted = [run(streamed, stop=stop) for stop in (3, 6)]
    with ThreadPoolExecutor(2) as pool:
        asked = [(stop, pool.submit(run, streamed, stop=stop)) for stop in (3, 6) * 8]
        assert all(equal(found.result(), wanted[stop == 6]) for stop, found in asked)

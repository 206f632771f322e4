"""The target on few bits: nearly always accepted, over exact rows or upper halves; wrong ground is refused at once."""

import pytest
import torch
from drafters.drafting import make, sequence, write

from outdraft.cache.config import CacheConfig
from outdraft.cache.int8 import to_bytes
from outdraft.core.cache import PAGE
from outdraft.drafters.quantized_self import upper_half
from outdraft.engine.runner import Runner
from outdraft.models.files.load import load_model, save_model
from outdraft.models.networks.port import TargetOrigin
from outdraft.models.remake.quantize import quantize_decoder
from outdraft.models.target.open_network import load_network
from outdraft.nn.quant.config import QuantConfig
from outdraft.options.errors import CapabilityError, ConfigError
from outdraft.testing.audit import CacheRecheck
from outdraft.testing.tiny import random_decoder, tiny_config


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    directory = tmp_path_factory.mktemp("target")
    model = random_decoder(tiny_config(inner=64, layers=2, vocab=64))
    save_model(model, directory)
    return model, directory


@pytest.fixture(autouse=True)
def as_in_the_loop():
    with torch.inference_mode():
        yield


def share(runner, prompts=([1, 2, 3], [4], [5, 6] * 5), **options):
    drafter = make("quantized_self", runner, **options)
    recheck = CacheRecheck(runner)
    seqs = [sequence(prompt, max_tokens=24) for prompt in prompts]

    def exact_rows(live):
        for seq in live:
            recheck(seq, seq.tokens[:-1])

    events = write(seqs, runner, drafter, k=4, each_step=exact_rows).events
    return sum(event.num_accepted for event in events) / sum(event.num_draft_tokens for event in events)


def test_more_bits_agree_more_and_the_cache_stays_exact(stored):
    model, directory = stored
    runner = Runner(model, origin=TargetOrigin(source=directory))
    eight, four = share(runner, bits=8), share(runner, bits=4)
    assert eight > 0.85 and eight > four > 0.2
    halves = share(runner, LONG, bits=8, kv_bits=4, buffer=16)
    assert share(runner, LONG, bits=8) > halves > 0.5


LONG = ([1, 2, 3] * 25, [4] * 30, [5, 6])


def test_old_rows_lose_their_lower_halves_and_recent_ones_stay_whole(stored):
    """The view against the target's own rows, after every step; only this moves the counter."""
    model, directory = stored
    runner = Runner(model, origin=TargetOrigin(source=directory))
    drafter = make("quantized_self", runner, bits=8, kv_bits=4, buffer=16)
    halves, recheck, old = drafter.halves, CacheRecheck(runner), {}

    def look(live):
        for seq in live:
            recheck(seq, seq.tokens[:-1])
            whole, n = halves._rounded[seq.id], halves.views.rows.length(seq.id)
            assert whole % 16 == 0 and (n < 32 or 16 <= n - whole < 32)
            old[seq.id] = whole
            for layer in range(2 if n else 0):
                seen = halves.views.rows.read(seq.id, layer, n)
                for view, exact in zip(seen, runner.port.rows.read(seq, layer), strict=True):
                    values, scales = to_bytes(exact[:, :n])
                    values[:, :whole] = upper_half(values[:, :whole])
                    assert torch.equal(view, (values.float() * scales[..., None]).to(view.dtype))

    write([sequence(prompt, max_tokens=24) for prompt in LONG], runner, drafter, k=4, each_step=look)
    assert max(old.values()) >= 64 and halves.num_rounded == sum(old.values()) and not halves._rounded


@pytest.mark.parametrize("layout", ["static", "paged"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])  # the second, where they are built, through the kernels
def test_over_a_cache_of_bytes_the_draft_reads_the_upper_halves_of_the_targets_own(tmp_path, dtype, layout):
    """Hierarchical: one byte, its upper half for the draft, both halves for the pass that verifies."""
    save_model(random_decoder(tiny_config(hidden=128, inner=64, vocab=64)), tmp_path)
    cache = CacheConfig(layout=layout, dtype="int8")
    runner = Runner(load_network(tmp_path, dtype), origin=TargetOrigin(source=tmp_path), cache=cache)
    drafter = make("quantized_self", runner, bits=8, kv_bits=4, buffer=16)
    looked = 0

    def look(live):
        nonlocal looked
        for seq in live:
            whole = drafter.halves._rounded[seq.id] // PAGE
            ours, theirs = drafter.halves.views.rows.memory(seq.id), runner.cache.memory(seq.id)
            n = drafter.halves.views.rows.length(seq.id) // PAGE
            pages = theirs.table[:n].long()
            for mine, own in ((ours.keys, theirs.keys[:, pages]), (ours.values, theirs.values[:, pages])):
                assert torch.equal(mine[:, :whole] & -16, own[:, :whole] & -16)
                assert not torch.equal(mine[:, :whole], own[:, :whole]) or not whole
                assert torch.equal(mine[:, whole:n], own[:, whole:n])
            looked += whole > 0

    write([sequence(prompt, max_tokens=24) for prompt in LONG], runner, drafter, k=4, each_step=look)
    assert looked > 5


def test_a_text_within_the_buffer_is_not_rounded(stored):
    model, directory = stored
    runner = Runner(model, origin=TargetOrigin(source=directory))
    drafter = make("quantized_self", runner, kv_bits=4, buffer=64)
    write([sequence(prompt, max_tokens=24) for prompt in LONG], runner, drafter, k=4)
    assert drafter.halves.num_rounded == 0
    assert make("quantized_self", runner).halves is None


def test_an_upper_half_is_four_bits():
    every = torch.arange(-127, 128, dtype=torch.int8)
    halves = upper_half(every)
    assert halves.dtype == torch.int8 and len(halves.unique()) == 16
    assert int((halves.int() - every.int()).abs().max()) == 8


def test_what_it_cannot_be_built_from(stored, tmp_path):
    model, directory = stored
    with pytest.raises(CapabilityError, match=r"not loaded from a directory.*weights="):
        make("quantized_self", Runner(model))
    other = random_decoder(tiny_config(inner=64, layers=3, vocab=64))
    with pytest.raises(CapabilityError, match=r"another model's \(2 layers"):
        make("quantized_self", Runner(other), weights=str(directory))
    small = quantize_decoder(load_model(directory), QuantConfig(bits=8))
    save_model(small, tmp_path / "small")
    with pytest.raises(CapabilityError, match="holds rounded ones"):
        make("quantized_self", Runner(model), weights=str(tmp_path / "small"))
    with pytest.raises(ConfigError, match="bits=3"):
        make("quantized_self", Runner(model), bits=3)
    for name, value in (("kv_bits", 8), ("buffer", 0), ("buffer", 24)):
        with pytest.raises(ConfigError, match=f"{name}={value}"):
            make("quantized_self", Runner(model), **{name: value})

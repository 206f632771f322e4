"""A streaming cache holds sinks and window as if they were the whole text, never grows, and goes back with its text."""

import pytest
import torch
from drafters.drafting import make, sequence, write

from outdraft.drafters.shared.networks import draft_cache
from outdraft.drafters.shared.networks.own_model import DraftModel, Text
from outdraft.drafters.shared.networks.streaming_cache import StreamingCache, StreamWindow
from outdraft.engine.runner import Runner
from outdraft.models.files.load import save_model
from outdraft.models.networks.native import NativeDecoder
from outdraft.models.target.open_network import load_network
from outdraft.options.errors import CapabilityError, ConfigError
from outdraft.testing.tiny import random_decoder, tiny_config, tiny_model

STREAM = StreamWindow(sinks=3, window=6)
TEXT = [(7 * i * i + i) % 31 for i in range(90)]


@pytest.fixture(autouse=True)
def as_in_the_loop():
    with torch.inference_mode():
        yield


def read(model, text):
    return model.read([Text(0, text)])[0]


@pytest.mark.parametrize("runs", ["pytorch", "kernels"])
def test_what_is_kept_counts_as_the_whole_text(runs, tmp_path):
    """Of one layer a row depends on its token and its place alone: the same logits as of the rows that are kept.

    The text goes on far beyond the model's context of 32 tokens.
    """
    decoder, tolerance = tiny_model(layers=1, vocab=31, max_len=32), 1e-9
    if runs == "kernels":  # they want wider heads, and bfloat16
        save_model(random_decoder(tiny_config(layers=1, vocab=31, max_len=32, hidden=128, inner=64)), tmp_path)
        decoder, tolerance = load_network(tmp_path, "bfloat16"), 0.1
        if not isinstance(decoder, NativeDecoder):
            pytest.skip("the native kernels are not built here, or are off")
    streaming, whole = DraftModel(decoder, stream=STREAM), DraftModel(decoder)
    streaming.add(0)
    for end in range(1, len(TEXT) + 1):
        found = read(streaming, TEXT[:end])
        kept = TEXT[:end] if end <= 10 else TEXT[:3] + TEXT[end - 7 : end]
        whole.add(0)
        torch.testing.assert_close(found, read(whole, kept), atol=tolerance, rtol=0)
        whole.free(0)
        assert streaming._cache.rows.length(0) == min(end, STREAM.size)
    assert streaming._cache.num_dropped == len(TEXT) - STREAM.size
    assert streaming.room(TEXT) > 1000 and whole.room(TEXT) == 0


def test_it_goes_back_with_its_text_and_reads_again_what_it_has_dropped():
    model, fresh = (DraftModel(tiny_model(vocab=31), stream=STREAM) for _ in range(2))
    model.add(0)
    read(model, TEXT[:40])
    for text in ([*TEXT[:38], 5], [*TEXT[:38], 5, 6, 7, 8, 9, 1], TEXT[:20], TEXT[:2]):
        found = read(model, text)
        assert model.cached_ids(0) == text
    fresh.add(0)
    assert torch.equal(found, read(fresh, TEXT[:2]))
    model.free(0)
    assert not any(value for value in vars(model._cache).values() if isinstance(value, dict))


def test_a_window_that_holds_the_text_changes_nothing(tmp_path):
    target = tiny_model(vocab=31)
    save_model(tiny_model(layers=1, vocab=31, seed=5), tmp_path)
    accepted = []
    for options in ({}, {"window": 500}, {"window": 4, "sinks": 2}):
        drafter = make("draft_model", Runner(target), model=str(tmp_path), **options)
        events = write([sequence([1, 2, 3] * 5, max_tokens=60, ignore_eos=True)], Runner(target), drafter).events
        accepted.append([event.num_accepted for event in events])
        assert drafter.model.is_empty
    assert accepted[0] == accepted[1] != accepted[2]
    assert isinstance(drafter.model._cache, StreamingCache) and drafter.model._cache.num_dropped > 30


def test_a_chunk_has_room_of_its_own_behind_what_is_kept(monkeypatch):
    """Not the room that is meant for guesses."""
    monkeypatch.setattr(draft_cache, "MAX_NODES", 0)
    model = DraftModel(tiny_model(vocab=31), chunk=16, stream=STREAM)
    model.add(0)
    read(model, TEXT)
    assert model.cached_ids(0) == TEXT and model._cache.rows.length(0) == STREAM.size


def test_what_it_refuses(tmp_path):
    with pytest.raises(ConfigError, match="window=0"):
        make("draft_model", window=0)
    with pytest.raises(CapabilityError, match="positions are learned"):
        DraftModel(tiny_model("gpt2", vocab=31), stream=STREAM)

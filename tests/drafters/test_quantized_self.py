"""The target on few bits: nearly always accepted, over exact rows; what it cannot be built from is said at once."""

import pytest
import torch
from drafters.drafting import make, sequence, write

from outdraft.core.errors import CapabilityError, ConfigError
from outdraft.engine.runner import Runner
from outdraft.models.load import load_model, save_model
from outdraft.models.quantize import quantize_decoder
from outdraft.nn.quant.config import QuantConfig
from outdraft.testing.recompute import CacheRecheck
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


def share(runner, **options):
    drafter = make("quantized_self", runner, **options)
    recheck = CacheRecheck(runner)
    seqs = [sequence(prompt, max_tokens=24) for prompt in ([1, 2, 3], [4], [5, 6] * 5)]

    def exact_rows(live):
        for seq in live:
            recheck(seq, seq.tokens[:-1])

    events = write(seqs, runner, drafter, k=4, each_step=exact_rows).events
    return sum(event.num_accepted for event in events) / sum(event.num_draft_tokens for event in events)


def test_more_bits_agree_more_and_the_cache_stays_exact(stored):
    model, directory = stored
    runner = Runner(model)
    runner.source = directory
    eight, four = share(runner, bits=8), share(runner, bits=4)
    assert eight > 0.85 and eight > four > 0.2


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

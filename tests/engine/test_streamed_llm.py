"""`weights_memory` of `LLM`: the same text from a streamed target, whatever drafts, and clear refusals."""

import pytest
import torch

from outdraft import LLM, SamplingParams
from outdraft.decode.executor import Overlapped, Serial
from outdraft.engine.assembly.variant import network_of, runner_of
from outdraft.kernels.library import library
from outdraft.models.files.load import save_model
from outdraft.models.remake.streamed import StreamedDecoder
from outdraft.options.errors import ConfigError
from outdraft.options.sizes import read_bytes
from outdraft.testing.tiny import random_decoder, tiny_config

needs_kernels = pytest.mark.skipif(library() is None, reason="the native kernels are not built (no C++ compiler)")
PROMPTS = [{"prompt_token_ids": [5, 6, 7, 8] * 4}, {"prompt_token_ids": [3]}]
WAYS = {
    "greedy": SamplingParams(max_tokens=20, logprobs=2),
    "seeded": SamplingParams(max_tokens=20, temperature=1.0, seed=3),
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A model of six layers and its own twin as a draft."""
    place = tmp_path_factory.mktemp("model")
    config = tiny_config(layers=6, hidden=64, inner=96, heads=2, kv_heads=1)
    save_model(random_decoder(config, dtype=torch.bfloat16, exact=False), place)
    return place


@pytest.fixture(scope="module")
def streamed(directory, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield LLM(directory, drafter="none", weights_memory="150KiB")


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return tmp_path_factory.mktemp("tables")


@needs_kernels
@pytest.mark.parametrize("params", WAYS.values(), ids=WAYS)
def test_the_text_is_the_resident_models(directory, streamed, params, tables):
    network = network_of(streamed.engine.parts)
    assert isinstance(network, StreamedDecoder)
    assert network.units.held_bytes <= 150 * 1024 < network.pass_bytes / 2
    assert streamed.config["weights_memory"] == 150 * 1024
    whole = LLM(directory).generate(PROMPTS, params)
    inner = {"method": "draft_model", "model": str(directory)}
    for drafter, options in (
        ("none", {}),
        ("ngram", {}),
        ("ngrammys", {"cache_dir": str(tables)}),
        ("draft_model", {"model": str(directory), "width": 2}),
        ("pearl", {"drafter": inner}),
        ("run_ahead", {"drafter": inner}),
        ("ssd", {"drafter": {**inner, "width": 2}}),
    ):
        llm = streamed.with_drafter({"name": drafter, **options}, num_speculative_tokens=4)
        assert isinstance(llm.engine.parts.executor, Overlapped if llm.engine.parts.traits.ahead else Serial)
        found = llm.generate(PROMPTS, params)
        assert [one.token_ids for one in found] == [one.token_ids for one in whole], drafter
        assert [one.logprobs for one in found] == [one.logprobs for one in whole], drafter
        if drafter not in ("none", "ngram", "ngrammys"):
            assert sum(one.stats.num_accepted_tokens for one in found) > 10, drafter


@needs_kernels
@pytest.mark.parametrize("length", [1, 3])
def test_texts_scored_aside_are_the_resident_models(directory, streamed, length):
    """Between passes of a text that lives: layers come and go, bits stay."""
    texts = torch.randint(0, 61, (9, length), generator=torch.Generator().manual_seed(1))
    wanted = runner_of(LLM(directory).engine.parts).port.layers.score(texts)
    assert wanted.shape == (9, 61) and wanted.std() > 0
    streamed.generate(PROMPTS[:1], WAYS["greedy"])
    for _ in range(2):
        assert torch.equal(runner_of(streamed.engine.parts).port.layers.score(texts), wanted)


@needs_kernels
def test_what_does_not_go_together_is_refused(directory, monkeypatch):
    with pytest.raises(ConfigError, match="weights_memory leaves most on disk"):
        LLM(directory, weights_memory="150KiB", precision="mixed")
    monkeypatch.setattr("outdraft.engine.llm.choose_device", torch.device)  # as if one were here
    with pytest.raises(ConfigError, match="device='cuda'"):
        LLM(directory, weights_memory="150KiB", device="cuda")
    with pytest.raises(ConfigError, match="too little"):
        LLM(directory, weights_memory="10KiB")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [(4096, 4096), ("4096", 4096), ("512MiB", 512 << 20), ("2GB", 2 * 10**9), ("1.5 KiB", 1536), ("3g", 3 * 10**9)],
)
def test_sizes(given, wanted):
    assert read_bytes(given) == wanted


@pytest.mark.parametrize("given", ["", "much", "-1MiB", "0", 0, True, "5XB", "1e9"])
def test_what_is_no_size_is_named(given):
    with pytest.raises(ConfigError, match=r"is no size|must be a whole number or a text"):
        read_bytes(given)

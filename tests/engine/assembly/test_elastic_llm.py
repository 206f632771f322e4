"""Elastic precision through `LLM`: a model goes down and up, and every result names its distribution."""

import gc
import weakref
from itertools import chain, repeat
from threading import Thread

import pytest
import torch

from outdraft import LLM, SamplingParams
from outdraft.core.drafter import inner
from outdraft.engine.assembly.memory import Memory
from outdraft.engine.assembly.variant import network_of
from outdraft.kernels.library import library
from outdraft.models.files.load import save_model
from outdraft.models.remake.quantize import quantize_decoder
from outdraft.nn.quant import QuantConfig
from outdraft.options.errors import CapabilityError, ConfigError, ModelLoadError
from outdraft.testing.tiny import random_decoder, tiny_config

LEVELS = ("full", "draft-int4", "mixed")
native = pytest.mark.skipif(library() is None, reason="the native kernels are not built here (no C++ compiler)")
PROMPTS = [{"prompt_token_ids": [1, 2, 3, 1, 2, 3, 1]}, {"prompt_token_ids": [9, 8, 9, 8]}]
GREEDY = SamplingParams(max_tokens=24)


@pytest.fixture(scope="module")
def target_dir(tmp_path_factory):
    directory = tmp_path_factory.mktemp("bf16")
    shape = tiny_config(hidden=128, inner=128, layers=4)
    save_model(random_decoder(shape, dtype=torch.bfloat16, exact=False, seed=3), directory)
    return directory


@pytest.fixture(scope="module")
def draft_dir(tmp_path_factory):
    directory = tmp_path_factory.mktemp("draft-bf16")
    shape = tiny_config(hidden=128, inner=128, layers=1)
    save_model(random_decoder(shape, dtype=torch.bfloat16, exact=False, seed=3), directory)
    return directory


@native
def test_a_model_goes_down_and_up_and_every_result_names_its_distribution(target_dir, draft_dir):
    options = {"drafter": {"name": "draft_model", "model": str(draft_dir)}}
    llm = LLM(target_dir, precision="elastic", precision_options={"min_free": 0.2}, **options)
    frees = chain((50, 10, 10, 50, 90, 90), repeat(90))
    llm.engine.ladder.read = lambda: Memory(free=next(frees) * 10**9, total=100 * 10**9)
    gone = weakref.ref(network_of(llm.engine.parts))
    made, levels, drafts = [], [], []
    for _ in range(6):
        made.append(llm.generate(PROMPTS[0], GREEDY))
        levels.append(llm.config["precision"]["level"])
        drafts.append(llm.config["drafter"]["variant"])
    assert levels == ["full", "draft-int4", "mixed", "draft-int4", "full", "full"]
    assert drafts == ["int8-g32", *["int4-g32-mixed"] * 3, "int8-g32", "int8-g32"]
    assert [result.variant for result in made] == ["", "", "int4-g32-mixed", "", "", ""]
    gc.collect()
    assert gone() is None, "the first weights are still held"
    texts = {name: LLM(target_dir, precision=name).generate(PROMPTS[0], GREEDY).token_ids for name in ("full", "mixed")}
    assert texts["full"] != texts["mixed"]
    assert [result.token_ids == texts["mixed"] for result in made] == [False, False, True, False, False, False]
    assert all(result.token_ids in texts.values() for result in made)


@native
def test_a_failed_change_is_reported_at_the_front_door_too(target_dir, monkeypatch):
    llm = LLM(target_dir, precision="elastic")
    llm.engine.ladder.read = lambda: Memory(free=1, total=100)
    good = llm.engine._load

    def broken(level):
        raise ModelLoadError("the file is gone")

    monkeypatch.setattr(llm.engine, "_load", broken)
    for _ in range(2):
        with pytest.raises(ModelLoadError, match="gone"):
            llm.generate(PROMPTS[0], GREEDY)
    assert llm.lossless
    monkeypatch.setattr(llm.engine, "_load", good)
    assert llm.generate(PROMPTS[0], GREEDY).variant == "int4-g32-mixed"


@native
def test_while_no_weights_are_held_every_door_says_so_and_the_next_request_loads(target_dir, monkeypatch):
    llm = LLM(target_dir, precision="elastic", drafter="ngram")
    llm.engine.ladder.read = lambda: Memory(free=1, total=100)

    def broken(level):
        raise ModelLoadError("the file is gone")

    with monkeypatch.context() as breaking:
        breaking.setattr(llm.engine, "_load", broken)
        with pytest.raises(ModelLoadError, match="gone"):
            llm.generate(PROMPTS[0], GREEDY)
    doors = [
        llm.forget,
        lambda: llm.with_drafter("none"),
        lambda: llm.with_drafter("recipe:ngram"),
        lambda: llm.engine.parts,
        lambda: llm.with_speculation(drafter="ngram"),
    ]
    for door in doors:
        with pytest.raises(CapabilityError, match="no weights are held"):
            door()
    assert llm.config["precision"]["level"] == "full" and llm.lossless
    assert llm.generate(PROMPTS[0], GREEDY).variant == "int4-g32-mixed"
    assert llm.with_drafter("none").config["variant"] == "int4-g32-mixed"


@native
def test_who_asks_during_a_change_of_weights_sees_the_old_or_the_new(target_dir, monkeypatch):
    llm = LLM(target_dir, precision="elastic")
    llm.engine.ladder.read = lambda: Memory(free=1, total=100)
    load, hold, told, made, callers = llm.engine._load, llm.engine.ladder.hold, [], [], []

    def note():
        told.append((llm.config["precision"]["level"], llm.config["variant"]))

    def load_and_ask(level):
        note()
        callers.append(Thread(target=lambda: made.append(llm.with_drafter("none").config)))
        callers[0].start()
        callers[0].join(0.5)
        return load(level)

    def hold_and_ask(*given):
        note()
        hold(*given)

    monkeypatch.setattr(llm.engine, "_load", load_and_ask)
    monkeypatch.setattr(llm.engine.ladder, "hold", hold_and_ask)
    assert llm.generate(PROMPTS[0], GREEDY).variant == "int4-g32-mixed"
    callers[0].join(30)
    assert told == [("full", ""), ("mixed", "int4-g32-mixed")]
    assert [(one["variant"], one["precision"]) for one in made] == [("int4-g32-mixed", {"name": "mixed"})]


@native
def test_new_weights_get_all_the_threads(target_dir):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        llm = LLM(target_dir, precision="elastic")
        llm.engine.ladder.read = lambda: Memory(free=1, total=100)
        assert llm.generate(PROMPTS[0], GREEDY).variant == "int4-g32-mixed"
        assert network_of(llm.engine.parts).stack.threads == 2
    finally:
        torch.set_num_threads(before)


@native
@pytest.mark.parametrize("precision", ["mixed", "draft-int4"])
def test_drafts_change_no_text_of_any_precision(target_dir, draft_dir, precision):
    options = {"drafter": {"name": "draft_model", "model": str(draft_dir)}}
    llm = LLM(target_dir, precision=precision, num_speculative_tokens=3, **options)
    plain = llm.with_drafter("none")
    assert llm.config["precision"] == {"name": precision}
    assert plain.config["precision"] == {"name": "mixed" if precision == "mixed" else "full"}
    assert llm.config["drafter"]["variant"] == ("int4-g32-mixed" if precision == "draft-int4" else "int8-g32")
    for params in (GREEDY, SamplingParams(max_tokens=24, temperature=0.9, seed=4)):
        ours, theirs = llm.generate(PROMPTS, params), plain.generate(PROMPTS, params)
        assert [r.token_ids for r in ours] == [r.token_ids for r in theirs]
        assert {r.variant for r in ours + theirs} == {"int4-g32-mixed" if precision == "mixed" else ""}


@native
def test_another_drafter_keeps_the_weights_of_the_moment(target_dir):
    llm = LLM(target_dir, precision="elastic")
    low = iter([1])
    llm.engine.ladder.read = lambda: Memory(free=next(low, 90) * 10**9, total=100 * 10**9)
    llm.generate(PROMPTS[0], GREEDY)
    other = llm.with_drafter("ngram")
    assert other.config["precision"] == {"name": "mixed"}
    assert network_of(other.engine.parts) is network_of(llm.engine.parts)
    llm.generate(PROMPTS[0], GREEDY)
    assert llm.config["precision"]["level"] == "full"
    assert other.generate(PROMPTS[0], GREEDY).variant == "int4-g32-mixed"


@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        ({"precision": "elastc"}, ConfigError, "did you mean 'elastic'"),
        ({"precision": "elastic", "precision_options": {"min_fre": 0.1}}, ConfigError, "min_free"),
        ({"precision_options": {"min_free": 0.1}}, ConfigError, "precision='elastic'"),
        ({"precision": "draft-int4"}, ConfigError, "no drafter is named"),
        (
            {"precision": "draft-int4", "drafter": {"name": "draft_model", "quantization": "int8"}},
            ConfigError,
            "leave one out",
        ),
        ({"precision": "elastic", "dtype": "float32"}, CapabilityError, "PyTorch"),
    ],
)
def test_what_cannot_be(target_dir, options, error, named):
    with pytest.raises(error, match=named):
        LLM(target_dir, **options)


@native
def test_a_rounded_model_has_no_levels(target_dir, tmp_path):
    from outdraft.models.files.load import load_model

    save_model(quantize_decoder(load_model(target_dir), QuantConfig(bits=8, group_size=0)), tmp_path)
    with pytest.raises(CapabilityError, match="rounded already"):
        LLM(tmp_path, precision="elastic")
    with pytest.raises(ConfigError, match="rounded already"):
        LLM(tmp_path, precision="mixed")


@native
@pytest.mark.parametrize(
    ("drafter", "options", "levels"),
    [
        ("cascade", lambda draft: {"models": [draft]}, LEVELS),
        ("bild", lambda draft: {"model": draft}, LEVELS),
        ("sam", lambda draft: {"otherwise": {"method": "draft_model", "model": draft}}, ("full", "mixed")),
        ("pearl", lambda draft: {"drafter": {"method": "draft_model", "model": draft}}, ("full", "mixed")),
        ("quantized_self", lambda draft: {}, ("full", "mixed")),
    ],
)
def test_levels_come_from_the_weights_that_a_drafter_holds(target_dir, draft_dir, drafter, options, levels):
    """A cascade has several models and says so in its own words: that was a `KeyError` once."""
    llm = LLM(target_dir, drafter={"name": drafter, **options(str(draft_dir))}, precision="elastic")
    assert llm.config["precision"]["levels"] == list(levels)
    low = iter([1, 1])
    llm.engine.ladder.read = lambda: Memory(free=next(low, 90) * 10**9, total=100 * 10**9)
    assert held_by(llm), "the drafter says what it holds"
    llm.generate(PROMPTS[0], GREEDY)
    bits = {weights.bits for weights in held_by(llm)}
    assert bits == {4} if drafter in ("cascade", "bild", "quantized_self") else bits == {8}


def held_by(llm):
    """All weights beside the target's."""
    return [weights for one in inner(llm.engine.parts.drafter) for weights in one.traits.weights]

"""Elastic precision: which level, when it may change, and that nothing changes within a request."""

import gc
import weakref
from itertools import chain, repeat
from threading import Thread

import pytest
import torch

from outdraft import LLM, SamplingParams
from outdraft.core.drafter import held_weights
from outdraft.core.policy import Budget
from outdraft.core.request import Request
from outdraft.decode.parts import Parts
from outdraft.engine.assembly.elastic import ElasticEngine
from outdraft.engine.assembly.memory import Memory
from outdraft.engine.assembly.precision import ElasticOptions, Ladder
from outdraft.engine.assembly.variant import Variant, network_of
from outdraft.engine.scheduler.settings import SchedulerSettings
from outdraft.kernels.library import library
from outdraft.models.files.load import save_model
from outdraft.models.remake.quantize import quantize_decoder
from outdraft.nn.quant import QuantConfig
from outdraft.options.errors import CapabilityError, ConfigError, ModelLoadError
from outdraft.testing.tiny import random_decoder, tiny_config
from tests.helpers.fakes import ConstantPolicy, ReferenceRule, TableTarget, oracle

LEVELS = ("full", "draft-int4", "mixed")
SIZES = {"full": 30, "draft-int4": 25, "mixed": 12}
SEEDS = {"full": 0, "draft-int4": 0, "mixed": 1}  # the target's distribution
OPTIONS = ElasticOptions(min_free=0.1, margin=0.05)


class Machine:
    """100 bytes, of which the world outside takes `others`, the held weights their size and a request one byte."""

    def __init__(self, others=0):
        self.others = others
        self.loads = []
        self.engine = None

    def read(self):
        if self.engine is None:
            return Memory(free=100, total=100)
        held = SIZES[self.engine.ladder.level] + len(self.engine.running)
        return Memory(free=100 - self.others - held, total=100)

    def load(self, level):
        self.loads.append(level)
        table = TableTarget(seed=SEEDS[level])
        parts = Parts(
            target=table,
            drafter=oracle(table.next_logits),
            verifier=ReferenceRule(),
            policy=ConstantPolicy(Budget(depth=2)),
        )
        return Variant(parts=parts, name="int4" if level == "mixed" else "", config={}, num_bytes=SIZES[level])


def engine_on(machine, **settings):
    machine.engine = ElasticEngine(
        machine.load("full"), machine.load, Ladder(LEVELS, OPTIONS, machine.read), **settings
    )
    return machine.engine


def request(max_tokens=6):
    return Request(prompt_token_ids=(3, 1), params=SamplingParams(max_tokens=max_tokens))


def write(engine, max_tokens=6):
    seq = engine.add(request(max_tokens))
    while engine.has_work:
        engine.step()
    return seq


def test_one_level_down_for_each_request_while_memory_is_short_and_up_again_when_there_is_plenty():
    machine = Machine()
    engine = engine_on(machine)
    levels = []
    for others in (0, 61, 61, 61, 68, 68, 40, 40, 40, 0):
        machine.others = others
        write(engine)
        levels.append(engine.ladder.level)
    # free: full 9 (61) -> draft-int4 14 (61; 9 with full) stays; 7 (68) -> mixed 20; 48, 43 with the level above -> up
    assert levels == [
        "full",
        "draft-int4",
        "draft-int4",
        "draft-int4",
        "mixed",
        "mixed",
        "draft-int4",
        "full",
        "full",
        "full",
    ]
    assert machine.loads == ["full", "draft-int4", "mixed", "draft-int4", "full"]


def test_what_a_change_frees_does_not_ask_for_the_next_change():
    """Every constant pressure comes to rest, and noise below the margin moves nothing there."""
    for others in range(0, 100, 7):
        machine = Machine(others)
        engine = engine_on(machine)
        for _ in range(3):
            write(engine)
        rest, loads = engine.ladder.level, len(machine.loads)
        for noise in (1, -1, 2, -2, 0, 2, -2, 1, -1, 0):
            machine.others = others + noise
            write(engine)
        assert len(machine.loads) <= loads + 1, f"flaps at {others}: {machine.loads}"
        if engine.ladder.level != rest:  # a pressure at the very edge: the noise went down once and stays
            assert LEVELS.index(engine.ladder.level) > LEVELS.index(rest)


def test_a_request_ends_in_the_precision_that_it_began_with():
    machine = Machine()
    engine = engine_on(machine)
    long = engine.add(request(max_tokens=40))
    engine.step()
    machine.others = 80
    late = [engine.add(request()) for _ in range(3)]
    while long.finish_reason is None:
        assert engine.running == [long] and machine.loads == ["full"]
        engine.step()
    while engine.has_work:
        engine.step()
    assert [seq.variant for seq in (long, *late)] == ["", "", "int4", "int4"]  # one level for each admission
    assert machine.loads == ["full", "draft-int4", "mixed"]
    assert long.output == write(engine_on(Machine()), 40).output
    plain = Machine()
    plain.engine = ElasticEngine(plain.load("mixed"), plain.load, Ladder(("mixed",), OPTIONS, plain.read))
    assert late[-1].output == write(plain.engine).output != late[0].output


def test_requests_keep_their_order_and_one_level_serves_many():
    machine = Machine(others=80)
    engine = engine_on(machine, scheduling=SchedulerSettings(max_num_seqs=4))
    seqs = [engine.add(request()) for _ in range(9)]
    done = []
    while engine.has_work:
        engine.step()
        done += [seq.id for seq in seqs if seq.finish_reason and seq.id not in done]
    assert done == sorted(done) and [seq.variant for seq in seqs] == ["", *["int4"] * 8]


def test_pressure_that_passes_while_others_finish_changes_nothing():
    machine = Machine()
    engine = engine_on(machine)
    engine.add(request(max_tokens=30))
    engine.step()
    machine.others = 80
    late = engine.add(request())
    engine.step()
    assert engine.waiting
    machine.others = 0
    engine.step()
    assert not engine.waiting
    while engine.has_work:
        engine.step()
    assert machine.loads == ["full"] and late.variant == ""


def test_a_load_that_fails_is_tried_again_by_the_next_request():
    machine = Machine()
    engine = engine_on(machine)
    good, machine.others = machine.load, 80

    def broken(level):
        raise ModelLoadError("the file is gone")

    engine._load = broken
    seq = engine.add(request())
    with pytest.raises(ModelLoadError, match="gone"):
        engine.step()
    engine.cancel(seq)
    engine.cancel(engine.add(request()))  # needs no parts
    engine.add(request())
    with pytest.raises(ModelLoadError, match="gone"):
        engine.step()
    engine._load = good
    assert write(engine).finish_reason == "length"


@pytest.mark.parametrize("bad", [{"min_free": 0}, {"min_free": -0.1}, {"margin": 1}, {"margin": 1.5}])
def test_options_out_of_range(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        ElasticOptions(**bad)


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
    assert held_weights(llm.engine.parts.drafter), "the drafter says what it holds"
    llm.generate(PROMPTS[0], GREEDY)
    bits = {weights.bits for weights in held_weights(llm.engine.parts.drafter)}
    assert bits == {4} if drafter in ("cascade", "bild", "quantized_self") else bits == {8}

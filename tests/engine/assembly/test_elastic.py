"""Elastic precision: which level, when it may change, and that nothing changes within a request."""

import pytest

from outdraft import SamplingParams
from outdraft.core.policy import Budget
from outdraft.core.request import Request
from outdraft.decode.parts import Parts
from outdraft.engine.assembly.elastic import ElasticEngine
from outdraft.engine.assembly.memory import Memory
from outdraft.engine.assembly.precision import ElasticOptions, Ladder
from outdraft.engine.assembly.variant import Variant
from outdraft.engine.scheduler.scheduler import SchedulerSettings
from outdraft.options.errors import ConfigError, ModelLoadError
from tests.helpers.fakes import ConstantPolicy, ReferenceRule, TableTarget, oracle

LEVELS = ("full", "draft-int4", "mixed")
SIZES = {"full": 30, "draft-int4": 25, "mixed": 12}
SEEDS = {"full": 0, "draft-int4": 0, "mixed": 1}  # the target's distribution
OPTIONS = ElasticOptions(min_free=0.1, margin=0.05)


class SizedVariant(Variant):
    """Its weights have no network behind them, and a size by its level."""

    @property
    def num_bytes(self):
        return SIZES[self.config["level"]]


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
        return SizedVariant(parts=parts, name="int4" if level == "mixed" else "", config={"level": level})


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

"""The guard: where a target's rows depend on the pass, greedy and coupled text is plain decoding's all the same."""

from dataclasses import replace
from functools import cache, partial

import pytest
import torch

from outdraft.core.draft import Draft, chain
from outdraft.core.drafter import Traits
from outdraft.core.packing import pack
from outdraft.core.policy import Budget
from outdraft.core.request import Request
from outdraft.decode import reference
from outdraft.decode.guard import GuardedTarget
from outdraft.decode.parts import Parts
from outdraft.drafters.none import METHOD as NONE
from outdraft.engine.graphed import GraphedRunner
from outdraft.engine.loop import Engine
from outdraft.engine.runner import Runner
from outdraft.nn.capture import call_each_time
from outdraft.options.params import SamplingParams
from outdraft.testing.subject import Outcome, run
from outdraft.testing.tiny import tiny_model
from outdraft.verify.auto import METHOD as AUTO
from tests.helpers.drifting_target import DriftingTarget
from tests.helpers.fakes import AuditedTarget, ConstantPolicy, TableTarget, alternating, oracle

DRIFT = 0.2
WAYS = {
    "greedy": {"temperature": 0.0},
    "penalties": {"temperature": 0.0, "repetition_penalty": 1.5, "presence_penalty": 0.25},
    "seeded": {"temperature": 1.0},
    "cold": {"temperature": 0.25},
    "top-k": {"temperature": 1.0, "top_k": 3},
    "top-p": {"temperature": 1.0, "top_p": 0.7},
    "min-p": {"temperature": 1.0, "min_p": 0.3},
}


class Comb:
    """Trees: at each of two levels the token that the target writes, between two others."""

    traits = Traits()

    def __init__(self, next_logits):
        self.inner = oracle(next_logits)
        self.needs, self.begin, self.observe, self.end = (
            self.inner.needs,
            self.inner.begin,
            self.inner.observe,
            self.inner.end,
        )

    def propose(self, seqs, budgets):
        drafts = []
        for guess in self.inner.propose(seqs, [Budget(depth=2)] * len(seqs)):
            pending, first, second = guess.tokens.tolist()
            tokens = [pending, (first + 1) % 11, first, (first + 2) % 11, (second + 1) % 11, second]
            drafts.append(Draft(tokens=torch.tensor(tokens), parents=torch.tensor([-1, 0, 0, 0, 2, 2])))
        return drafts


class Twins(Comb):
    """The right first token twice, as two independent draws give it; the second token hangs below the second one."""

    def propose(self, seqs, budgets):
        drafts = []
        for guess in self.inner.propose(seqs, [Budget(depth=2)] * len(seqs)):
            pending, first, second = guess.tokens.tolist()
            drawn = torch.tensor([first, (second + 1) % 11, second])
            drafts.append(
                Draft(
                    tokens=torch.tensor([pending, first, first, *drawn[1:].tolist()]),
                    parents=torch.tensor([-1, 0, 0, 1, 2]),
                    drawn_from=torch.tensor([0, 0, 0, 1, 2]),
                    q=torch.nn.functional.one_hot(torch.cat([drawn, drawn[:2]]), 11).float(),
                )
            )
        return drafts


class Nervous:
    """A rule that raises at every pass of many, behind the guard: each round is run again, sequence by sequence."""

    lossless = True

    def __init__(self):
        self.inner = AUTO.build(None)
        self.couples = self.inner.couples

    def __call__(self, packed, p, coins):
        if len(packed.seqs) > 1:
            raise RuntimeError("once more")
        return self.inner(packed, p, coins)


DRAFTERS = {
    "chain": lambda table: alternating(table.next_logits, (4, 1, 3, 0)),
    "tree": lambda table: Comb(table.next_logits),
    "twins": lambda table: Twins(table.next_logits),
    "none": lambda table: NONE.build(NONE.options(), None),
}


def engine(target, drafter, guard: float) -> Engine:
    policy = ConstantPolicy(Budget(depth=4))
    audited = AuditedTarget(target)
    guarded = GuardedTarget(audited, guard) if guard else audited
    return Engine(Parts(target=guarded, drafter=drafter, verifier=AUTO.build(None), policy=policy))


def requests(way: str, count: int = 4) -> list[Request]:
    seeded = {"seed": 3} if WAYS[way]["temperature"] else {}
    return [
        Request(
            prompt_token_ids=(3, i, 5),
            params=SamplingParams(max_tokens=48, **WAYS[way], **{name: seed + i for name, seed in seeded.items()}),
        )
        for i in range(count)
    ]


@cache
def plain_texts(target: TableTarget, way: str) -> list[list[int]]:
    fresh = engine(target, DRAFTERS["none"](target), 0.0)
    return [reference.decode(target.next_logits, fresh.add(request)) for request in requests(way)]


def texts(way: str, drafter: str, guard: float, *, alone: bool, **options) -> tuple[list[list[int]], list[Outcome]]:
    target = DriftingTarget(drift=DRIFT, coarse=0.5, sharpness=1.5, seed=5, **options)
    running = engine(target, DRAFTERS[drafter](target), guard)
    groups = [[request] for request in requests(way)] if alone else [requests(way)]
    outcomes = [outcome for group in groups for outcome in run(running, group)]
    return [outcome.seq.output for outcome in outcomes], outcomes


@pytest.fixture(scope="module")
def table() -> DriftingTarget:
    return DriftingTarget(drift=DRIFT, coarse=0.5, sharpness=1.5, seed=5)


@pytest.mark.parametrize(
    ("way", "drafter", "alone"),
    [(way, name, (i + j) % 2 == 1) for i, way in enumerate(WAYS) for j, name in enumerate(("chain", "tree", "twins"))],
)
def test_text_is_plain_decodings(table, way, drafter, alone):
    written, outcomes = texts(way, drafter, DRIFT, alone=alone)
    assert written == plain_texts(table, way)
    assert sum(outcome.stats.num_guarded for outcome in outcomes) > 0
    assert all(outcome.stats.num_replayed_rows >= outcome.stats.num_guarded for outcome in outcomes)
    assert sum(outcome.stats.num_guarded for outcome in outcomes) < sum(o.stats.num_steps for o in outcomes)


@pytest.mark.parametrize("way", WAYS)
def test_without_the_guard_it_is_not(table, way):
    assert texts(way, "chain", 0.0, alone=True)[0] != plain_texts(table, way)


@pytest.mark.parametrize("way", ["greedy", "cold"])
def test_a_row_computed_alone_over_drifted_keys_does_not_help(table, way):
    """Why a replay starts where the cache left plain decoding, and not at the row in doubt."""
    assert texts(way, "chain", DRIFT, alone=True, forgets=True)[0] != plain_texts(table, way)


def test_a_batch_without_drafts_is_guarded_too(table):
    assert texts("greedy", "none", DRIFT, alone=False)[0] == plain_texts(table, "greedy")
    assert texts("greedy", "none", 0.0, alone=False)[0] != plain_texts(table, "greedy")


def test_plain_decoding_alone_is_never_asked_again():
    _, outcomes = texts("greedy", "none", 1e9, alone=True)
    assert all(outcome.stats.num_guarded == 0 for outcome in outcomes)


def test_exact_rows_are_never_asked_again():
    target = TableTarget(vocab_size=11, seed=5)  # its `replay` does not exist
    for outcome in run(engine(target, oracle(target.next_logits), 1e9), requests("greedy")):
        assert outcome.stats.num_guarded == 0 and outcome.stats.tau > 4


def test_an_unseeded_distribution_is_left_alone():
    params = SamplingParams(max_tokens=20, temperature=1.0)
    target = DriftingTarget(drift=DRIFT, coarse=0.5, seed=5)
    for outcome in run(
        engine(target, oracle(target.next_logits), 1e9), [Request(prompt_token_ids=(3,), params=params)]
    ):
        assert outcome.stats.num_guarded == 0


def test_the_end_of_a_text_may_fall_into_a_replayed_path(table):
    plain = plain_texts(table, "greedy")[0]
    for length in range(1, len(plain)):
        params = SamplingParams(max_tokens=length)
        target = DriftingTarget(drift=DRIFT, coarse=0.5, sharpness=1.5, seed=5)
        request = Request(prompt_token_ids=(3, 0, 5), params=params)
        outcome = run(engine(target, DRAFTERS["chain"](target), DRIFT), [request])[0]
        assert outcome.seq.output == plain[:length]


def launched(decoder):
    """The GPU's runner without tiles, whose plain pass is the static one of one row."""
    return GraphedRunner(decoder, record=call_each_time, row_tile=None)


def test_with_tiles_a_chain_is_plain_decodings_and_a_tree_is_not():
    runner = GraphedRunner(tiny_model("llama", vocab=61, seed=1, exact=False), record=call_each_time)
    running = engine(runner, DRAFTERS["none"](None), 0.0)
    seqs = [running.add(request) for request in requests("greedy")[:2]]
    while not all(seq.num_output for seq in seqs):
        running.step()
    pending = [seq.pending for seq in seqs]
    fork = Draft(tokens=torch.tensor([pending[1], 4, 5]), parents=torch.tensor([-1, 0, 0]))
    assert not runner.forward(pack(seqs, [chain([pending[0], 4, 5]), chain([pending[1]])])).drifted
    assert runner.forward(pack(seqs, [chain([pending[0], 4, 5]), fork])).drifted == {1}
    runner.commit(seqs[1], [0, 2])
    assert runner.plain_rows is not None and runner.plain_rows._plain[seqs[1].id] < runner.cache.length(seqs[1].id)


@pytest.mark.parametrize("make", [partial(Runner, exact=False), launched], ids=["runner", "graphed"])
@pytest.mark.parametrize("bound", [1e9, 0.5])
def test_a_replay_leaves_plain_decodings_keys_and_values(bound, make):
    decoder = tiny_model("llama", vocab=61, dtype=torch.bfloat16, seed=1, exact=False)
    request = Request(prompt_token_ids=tuple(range(2, 9)), params=SamplingParams(max_tokens=24))
    caches, replayed = [], 0
    for guard in (0.0, bound):
        runner = make(decoder)
        logits = TableTarget(vocab_size=61, order=1).next_logits  # guesses at random
        running = engine(runner, alternating(logits) if guard else DRAFTERS["none"](None), guard)
        seq = running.add(request)
        settled = not guard  # the last pass was a replay: then all that is cached is plain decoding's
        while seq.num_output < 12 or not settled:
            settled = running.step()[0].num_replayed is not None or not guard
            replayed += settled and guard > 0
        length = runner.cache.length(seq.id)
        caches.append((seq.tokens, [[x.clone() for x in runner.cache.read(seq.id, i, length)] for i in (0, 1)]))
    (plain, theirs), (tokens, ours) = caches
    common = min(len(plain), len(tokens)) - 1
    assert replayed and plain[:common] == tokens[:common]
    for a, b in zip(theirs, ours, strict=True):
        for x, y in zip(a, b, strict=True):
            assert torch.equal(x[:, :common], y[:, :common])


@pytest.mark.logs_faults
def test_a_round_that_is_run_again_after_a_replay_forgets_the_replay(table):
    """Over a table, and over a network whose cache the replay has rewritten."""
    for target, wanted in (
        (DriftingTarget(drift=DRIFT, coarse=0.5, sharpness=1.5, seed=5), plain_texts(table, "greedy")),
        (Runner(tiny_model("llama", vocab=11, dtype=torch.bfloat16, seed=1, exact=False), exact=False), None),
        (launched(tiny_model("llama", vocab=11, dtype=torch.bfloat16, seed=1, exact=False)), None),
    ):
        if wanted is None:
            plain = engine(target, DRAFTERS["none"](None), 0.0)
            wanted = [run(plain, [request])[0].seq.output for request in requests("greedy")]
        running = engine(target, alternating(table.next_logits, (4, 1, 3, 0)), 1e9)
        running.isolates = True
        running.parts = replace(running.parts, verifier=Nervous())
        outcomes = run(running, requests("greedy"))
        assert [outcome.seq.output for outcome in outcomes] == wanted
        assert sum(outcome.stats.num_guarded for outcome in outcomes) > 0


def test_logprobs_are_those_of_the_row_that_decided(table):
    params = SamplingParams(max_tokens=40, logprobs=1)
    target = DriftingTarget(drift=DRIFT, coarse=0.5, sharpness=1.5, seed=5)
    outcome = run(
        engine(target, DRAFTERS["chain"](target), DRIFT), [Request(prompt_token_ids=(3, 0, 5), params=params)]
    )[0]
    cut = outcome.events[-1]  # perhaps before the row in doubt
    settled = [event for event in outcome.events if event.num_replayed is not None and event is not cut]
    assert settled
    seq = outcome.seq
    at = seq.prompt_len
    for event in outcome.events:
        at += len(event.tokens)
        if event in settled:
            distribution = torch.log_softmax(target.next_logits(seq.tokens[: at - 1]).float(), -1)
            assert event.logprobs[-1].raw == pytest.approx(float(distribution[seq.tokens[at - 1]]), abs=1e-6)

"""A fault costs the sequence that it belongs to: the others write what they write alone, for every part and place."""

import logging
from dataclasses import replace

import pytest
import torch
from decode.troubled import BAD_GUESSES, CULPRIT, Boom, Troubled

from outdraft.cache.paged import PagedCache
from outdraft.core.drafter import Traits
from outdraft.core.policy import Budget
from outdraft.core.request import Request
from outdraft.decode import reference
from outdraft.decode.apart import fail
from outdraft.decode.executor import Overlapped
from outdraft.decode.parts import Parts
from outdraft.engine.loop import Engine
from outdraft.engine.runner import Runner
from outdraft.options.errors import CapabilityError, DecodingError, NumericsError, RequestError
from outdraft.options.params import SamplingParams
from outdraft.testing.subject import Outcome, collect, join
from outdraft.testing.tiny import tiny_model
from outdraft.verify.auto import METHOD as AUTO
from tests.helpers.fakes import AuditedTarget, ConstantPolicy, TableTarget, alternating, oracle

PROMPTS = [(3, 1), (5, 2, 6), (7, 4), (1, 1)]
WAYS = {"greedy": {}, "seeded": {"temperature": 1.0, "seed": 4}, "unseeded": {"temperature": 1.0}}

pytestmark = pytest.mark.logs_faults


def requests(way="greedy", **culprit) -> list[Request]:
    asked = [Request(prompt_token_ids=ids, params=SamplingParams(max_tokens=24, **WAYS[way])) for ids in PROMPTS]
    asked[CULPRIT] = replace(asked[CULPRIT], params=replace(asked[CULPRIT].params, **culprit))
    return asked


def engine_over(target, drafter, *, rule=None, policy=None, **others) -> Engine:
    parts = Parts(
        target=target,
        drafter=drafter,
        verifier=rule or AUTO.build(None),
        policy=policy or ConstantPolicy(Budget(depth=3)),
        **others,
    )
    return Engine(parts, isolates=True)


def run(engine: Engine, asked) -> list[Outcome]:
    outcomes: dict[int, Outcome] = {}
    join(engine, outcomes, asked)
    for _ in range(500):
        if not engine.has_work:
            return list(outcomes.values())
        collect(engine, outcomes)
    raise AssertionError("the engine does not come to an end")


def alone(table: TableTarget, request: Request, seed: int) -> list[int]:
    """Plain decoding of one request, with no engine; `seed`: what the engine drew for it."""
    engine = engine_over(table, oracle(table.next_logits))
    return reference.decode(table.next_logits, replace(engine.prepare(request), seed=seed))


def ended(outcome: Outcome):
    return outcome.events[-1].error


def check_neighbours(table, outcomes, asked) -> None:
    for i, (outcome, request) in enumerate(zip(outcomes, asked, strict=True)):
        if i != CULPRIT:
            assert outcome.seq.finish_reason == "length" and ended(outcome) is None
            if request.params.greedy or request.params.seed is not None:
                assert outcome.seq.output == alone(table, request, outcome.seq.seed)


class Faulty(TableTarget):
    """Raises, or writes NaN, at every pass after the third in which the culprit is."""

    def __init__(self, how: str) -> None:
        super().__init__(vocab_size=11, seed=5)
        self.how = how
        self.passes = 0

    def forward(self, packed, taps=()):
        out = super().forward(packed, taps)
        for i, seq in enumerate(packed.seqs):
            self.passes += seq.id == CULPRIT
            if self.how in ("nan", "inf", "raise") and seq.id == CULPRIT and self.passes > 3:
                if self.how == "raise":
                    raise Boom("in the pass")
                out.logits[packed.node_starts[i]] = torch.nan if self.how == "nan" else torch.inf
        return out

    def begin(self, seq):
        if self.how == "begin" and seq.id == CULPRIT:
            raise Boom("no room")
        return super().begin(seq)

    def commit(self, seq, keep):
        if self.how == "commit" and seq.id == CULPRIT and seq.num_output > 4:
            raise Boom("in the cache")
        super().commit(seq, keep)

    def end(self, seq):
        super().end(seq)
        if self.how == "end" and seq.id == CULPRIT:
            raise Boom("at the end")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("nan", NumericsError),
        ("inf", NumericsError),
        ("raise", DecodingError),
        ("begin", DecodingError),
        ("commit", DecodingError),
    ],
)
def test_a_fault_of_the_target_ends_one_request(way, how, error):
    table = Faulty(how)
    asked = requests(way)
    engine = engine_over(AuditedTarget(table), alternating(table.next_logits))
    outcomes = run(engine, asked)
    check_neighbours(table, outcomes, asked)
    culprit = outcomes[CULPRIT]
    assert isinstance(ended(culprit), error) and culprit.seq.finish_reason == "error"
    assert not table.cached and not engine.parts.drafter.rounds, "the request has left something behind"
    written = [token for event in culprit.events for token in event.tokens]
    if way != "unseeded":
        assert written == alone(table, asked[CULPRIT], culprit.seq.seed)[: len(written)]
    if error is DecodingError:
        assert f"after {len(written)} tokens" in str(ended(culprit)), "what it counts is what its caller has"


def test_the_others_of_an_unseeded_batch_draw_as_if_nothing_had_happened():
    """The round is run again with the guesses and coins that it had."""

    def texts(how):
        table = Faulty(how)
        engine = engine_over(table, alternating(table.next_logits))
        for i, seq in enumerate(seqs := [engine.prepare(request) for request in requests("unseeded")]):
            seq.seed = i
            engine.enqueue(seq)
        while engine.has_work:
            engine.step()
        return [seq.output for i, seq in enumerate(seqs) if i != CULPRIT]

    assert texts("raise") == texts("nothing")


@pytest.mark.parametrize("drafted", [False, True])
def test_a_round_that_is_run_again_does_not_run_ahead_again(drafted):
    """A drafter that worked beside a pass must not do so twice for one guess; its state has moved on."""
    table = TableTarget(vocab_size=11, seed=5)
    drafter, asked = alternating(table.next_logits), []

    def ahead(seqs, drafts, is_over):
        asked.extend((seq.id, seq.num_output) for seq in seqs)
        return [None] * len(seqs)

    drafter.traits = Traits(ahead=ahead)
    run(engine_over(table, drafter, rule=Rule(drafted)), requests())
    assert len(asked) == len(set(asked)) > 10


def test_what_breaks_when_a_request_ends_hurts_no_other():
    table = Faulty("end")
    outcomes = run(engine_over(table, alternating(table.next_logits)), requests())
    assert [outcome.seq.finish_reason for outcome in outcomes] == ["length"] * 4


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("bias", [-1e39, torch.inf, 1e39])
def test_a_bias_that_leaves_no_token_ends_its_own_request(way, bias):
    table = TableTarget(vocab_size=11, seed=5, dtype=torch.float32)
    asked = requests(way)
    params = replace(asked[CULPRIT].params)
    object.__setattr__(params, "logit_bias", dict.fromkeys(range(11), bias))  # past the check of a single value
    asked[CULPRIT] = replace(asked[CULPRIT], params=params)
    outcomes = run(engine_over(table, alternating(table.next_logits)), asked)
    check_neighbours(table, outcomes, asked)
    assert isinstance(ended(outcomes[CULPRIT]), RequestError) and "logit_bias" in str(ended(outcomes[CULPRIT]))


class Rule:
    """Raises where the culprit is, or forgets its verdict; with `drafted`, only where it has a draft."""

    lossless = True

    def __init__(self, drafted: bool, forgets: bool = False) -> None:
        self.inner, self.drafted, self.forgets = AUTO.build(None), drafted, forgets
        self.couples = self.inner.couples

    def __call__(self, packed, p, coins):
        for seq, draft in zip(packed.seqs, packed.drafts, strict=True):
            if seq.id == CULPRIT and draft is not None and (draft.num_nodes > 1 or not self.drafted):
                if self.forgets:
                    return self.inner(packed, p, coins)[:-1]
                raise Boom("in the rule")
        return self.inner(packed, p, coins)


@pytest.mark.parametrize("drafted", [False, True])
def test_a_rule_that_raises(drafted):
    table = TableTarget(vocab_size=11, seed=5)
    asked = requests()
    outcomes = run(engine_over(table, oracle(table.next_logits), rule=Rule(drafted)), asked)
    check_neighbours(table, outcomes, asked)
    if drafted:  # the guess is at fault, so the request loses its drafter and nothing else
        assert outcomes[CULPRIT].seq.output == alone(table, asked[CULPRIT], 0)
        assert outcomes[CULPRIT].stats.num_draft_tokens == 0 < outcomes[0].stats.num_accepted_tokens
    else:
        assert isinstance(ended(outcomes[CULPRIT]), DecodingError)
        assert "Boom: in the rule" in str(ended(outcomes[CULPRIT]))


@pytest.mark.parametrize("way", WAYS)
def test_a_rule_that_forgets_a_verdict_ends_one_request(way):
    table = TableTarget(vocab_size=11, seed=5)
    asked = requests(way)
    outcomes = run(engine_over(table, oracle(table.next_logits), rule=Rule(drafted=False, forgets=True)), asked)
    check_neighbours(table, outcomes, asked)
    assert "gave 0 verdicts for 1 guesses" in str(ended(outcomes[CULPRIT]))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("verb", ["begin", "propose", "ahead", "beside", "observe", "end", *BAD_GUESSES])
def test_a_drafter_that_raises_costs_its_speculation(way, verb, caplog):
    table = TableTarget(vocab_size=11, seed=5)
    asked = requests(way)
    drafter = Troubled(table, "ahead" if verb == "beside" else verb)
    engine = engine_over(table, drafter, **({"executor": Overlapped()} if verb == "beside" else {}))
    with caplog.at_level(logging.WARNING, logger="outdraft"):
        outcomes = run(engine, asked)
    for outcome, request in zip(outcomes, asked, strict=True):
        assert outcome.seq.finish_reason == "length" and ended(outcome) is None
        if way != "unseeded":
            assert outcome.seq.output == alone(table, request, outcome.seq.seed)
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1, "logged once"
    assert sorted(drafter.ended) == [0, 1, 2, 3], "each sequence ends in the drafter, once"
    assert not table.cached
    if verb != "end":
        assert outcomes[CULPRIT].stats.num_draft_tokens < outcomes[0].stats.num_draft_tokens or verb in (
            "observe",
            "ahead",
            "beside",
        )
    if (
        way != "unseeded" and verb in ("propose", "begin", *BAD_GUESSES) and verb != "count"
    ):  # the others keep their drafter
        assert all(o.stats.num_accepted_tokens > 10 for i, o in enumerate(outcomes) if i != CULPRIT)


class TroubledPolicy(ConstantPolicy):
    """Raises in one verb, always."""

    __slots__ = ()
    verb = ""

    def plan(self, seqs):
        return self._meet("plan") or super().plan(seqs)

    def update(self, events):
        self._meet("update")

    def end(self, seqs):
        self._meet("end")

    def _meet(self, verb):
        if verb == self.verb:
            raise Boom(verb)


@pytest.mark.parametrize("verb", ["plan", "update", "end"])
def test_a_policy_that_raises_costs_no_text(verb):
    table = TableTarget(vocab_size=11, seed=5)
    policy = type("Other", (TroubledPolicy,), {"verb": verb})(Budget(depth=3))
    asked = requests()
    outcomes = run(engine_over(table, oracle(table.next_logits), policy=policy), asked)
    for outcome, request in zip(outcomes, asked, strict=True):
        assert outcome.seq.output == alone(table, request, 0) and ended(outcome) is None
    assert (outcomes[0].stats.num_draft_tokens == 0) == (verb == "plan")


def test_a_full_pool_ends_as_few_requests_as_it_must():
    """Five pages of 16 rows, four texts of about 40 rows: some end with an error, and later ones find room."""
    decoder = tiny_model("llama", vocab=61, seed=1)
    asked = [Request(prompt_token_ids=(3, i), params=SamplingParams(max_tokens=38)) for i in range(4)]

    def texts(num_pages):
        runner = Runner(decoder)
        runner.cache = PagedCache(
            *runner.cache.shape, runner.dtype, runner.device, runner.max_len, num_pages=num_pages, poison=True
        )
        target = TableTarget(vocab_size=61, order=1)
        engine = engine_over(runner, alternating(target.next_logits))
        first, second = run(engine, asked), run(engine, asked[:1])
        runner.cache.check()
        assert runner.cache.num_free == num_pages
        return first, second

    wide, _ = texts(40)
    narrow, later = texts(5)
    reasons = [outcome.seq.finish_reason for outcome in narrow]
    assert "length" in reasons and "error" in reasons and later[0].seq.finish_reason == "length"
    for free, tight in zip(wide, narrow, strict=True):
        if tight.seq.finish_reason == "error":
            assert isinstance(ended(tight), CapabilityError) and "kv_cache_memory" in str(ended(tight))
        written = [token for event in tight.events for token in event.tokens]
        assert written == free.seq.output[: len(written)] and (tight.seq.finish_reason == "error" or len(written) == 38)


def test_without_isolation_every_fault_is_raised():
    """What the contract suites lean on: a drafter's broken promise must not pass for plain decoding."""
    table = TableTarget(vocab_size=11, seed=5)
    for verb in ("begin", "propose", "ahead", "observe", "end"):
        engine = engine_over(AuditedTarget(table), Troubled(table, verb))
        engine.isolates = False
        engine.parts = engine.parts
        with pytest.raises(Boom, match=verb):
            run(engine, requests())


def test_an_error_that_is_kept_keeps_no_frames():
    table = Faulty("raise")
    outcomes = run(engine_over(table, oracle(table.next_logits)), requests())
    error = ended(outcomes[CULPRIT])
    assert isinstance(error.__cause__, Boom)
    assert error.__traceback__ is None and error.__cause__.__traceback__ is None


def test_an_error_keeps_no_frames_of_its_cause_nor_of_its_context():
    def raised(error):
        try:
            raise error
        except Exception as caught:
            return caught

    cause, context, outer = raised(Boom("cause")), raised(Boom("context")), raised(RequestError("outer"))
    outer.__cause__, outer.__context__, cause.__context__ = cause, context, outer  # and a ring
    engine = Engine(
        Parts(
            target=(table := TableTarget()),
            drafter=oracle(table.next_logits),
            verifier=AUTO.build(None),
            policy=ConstantPolicy(Budget(depth=1)),
        )
    )
    fail(engine.prepare(requests()[0]), outer)
    assert [one.__traceback__ for one in (outer, cause, context)] == [None] * 3


class Mute(Boom):
    """Cannot say what went wrong."""

    def __str__(self):
        raise Boom("no words")


@pytest.mark.parametrize("verb", ["pass", "propose", "plan"])
def test_an_error_that_cannot_be_shown(verb, monkeypatch):
    table = TableTarget(vocab_size=11, seed=5)
    drafter, policy = oracle(table.next_logits), ConstantPolicy(Budget(depth=3))
    owner = {"pass": table, "propose": drafter, "plan": type(policy)}[verb]

    def broken(*given):
        raise Mute

    monkeypatch.setattr(owner, "forward" if verb == "pass" else verb, broken)
    outcomes = run(engine_over(table, drafter, policy=policy), requests())
    assert {outcome.seq.finish_reason for outcome in outcomes} == {"error" if verb == "pass" else "length"}
    if verb == "pass":
        assert "Mute" in str(ended(outcomes[0]))

"""The loop under scripted drafters: how much is accepted is known before the run, so every counter is too."""

from dataclasses import replace

import pytest
import torch

from outdraft.core.draft import Draft, chain
from outdraft.core.drafter import Traits
from outdraft.core.events import Source
from outdraft.core.packing import pack
from outdraft.core.policy import Budget
from outdraft.core.request import Request
from outdraft.decode import reference
from outdraft.decode.parts import Parts
from outdraft.engine.loop import Engine
from outdraft.engine.stats import RequestStats
from outdraft.options.errors import CapabilityError
from outdraft.options.params import SamplingParams
from tests.helpers.fakes import (
    AuditedTarget,
    AuditError,
    ConstantPolicy,
    RandomTreeDrafter,
    ReferenceRule,
    TableTarget,
    alternating,
    liar,
    oracle,
)

PROMPT = (3,)  # one token is pending from the start: every pass is a round


def engine_with(table: TableTarget, drafter, depth: int = 4, **options) -> Engine:
    policy = ConstantPolicy(Budget(depth=depth))
    return Engine(
        Parts(target=AuditedTarget(table), drafter=drafter, verifier=ReferenceRule(), policy=policy), **options
    )


def run(engine: Engine, request: Request):
    seq, stats, events = engine.add(request), RequestStats(), []
    while engine.has_work:
        for event in engine.step():
            stats.add(event)
            events.append(event)
    return seq, stats, events


@pytest.fixture
def table() -> TableTarget:
    return TableTarget(vocab_size=11, seed=5)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_oracle_is_always_right(table, temperature):
    request = Request(prompt_token_ids=PROMPT, params=SamplingParams(max_tokens=25, temperature=temperature, seed=7))
    seq, stats, events = run(engine_with(table, oracle(table.next_logits)), request)
    assert seq.output == reference.decode(table.next_logits, fresh(table, request))
    assert stats.tau == 5.0 and stats.num_steps == 5  # 25 tokens in rounds of 4 + 1
    assert stats.acceptance_by_position == [1.0] * 4
    assert stats.num_rejections == 0 and stats.first_rejection_histogram == []
    assert all(event.sources == (Source.ACCEPTED,) * 4 + (Source.BONUS,) for event in events if event.tokens)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_liar_costs_passes_but_never_a_token(table, temperature):
    request = Request(prompt_token_ids=PROMPT, params=SamplingParams(max_tokens=20, temperature=temperature, seed=7))
    seq, stats, events = run(engine_with(table, liar(table.next_logits)), request)
    assert seq.output == reference.decode(table.next_logits, fresh(table, request))
    assert stats.tau == 1.0 and stats.num_steps == 20
    assert stats.acceptance_by_position == [0.0] and stats.first_rejection_histogram == [20]
    assert all(event.sources == (Source.RECOVERED,) for event in events if event.tokens)


def test_alternating_counts_exactly(table):
    request = Request(prompt_token_ids=PROMPT, params=SamplingParams(max_tokens=20))
    drafter = alternating(table.next_logits, (2, 0, 3, 4))
    seq, stats, _ = run(engine_with(table, drafter), request)
    assert seq.output == reference.decode(table.next_logits, fresh(table, request))
    # Rounds accept 2, 0, 3, 4, 2, 0 and emit one more each: 3 + 1 + 4 + 5 + 3 + 1 = 17, then 3 of the last round's 4.
    assert [accepted for _, accepted in stats.per_step] == [2, 0, 3, 4, 2, 0, 3]
    assert stats.num_tokens == 20 and stats.num_steps == 7
    assert stats.first_rejection_histogram == [2, 0, 2, 2]
    assert stats.acceptance_by_position == pytest.approx([5 / 7, 1.0, 3 / 5, 1 / 3])


def test_trees_keep_their_path(table):
    q = TableTarget(vocab_size=11, seed=6)
    drafter = RandomTreeDrafter(lambda tokens: torch.softmax(q.next_logits(tokens), -1), max_nodes=12)
    params = SamplingParams(max_tokens=60, temperature=1.0, seed=11)
    request = Request(prompt_token_ids=(3, 1, 4, 1, 5), params=params)
    seq, stats, _ = run(engine_with(table, drafter, depth=3), request)
    assert seq.output == reference.decode(table.next_logits, fresh(table, request))
    assert stats.tau > 1.2  # the audit has seen real paths


def test_the_pass_that_ends_the_prompt_emits_too(table):
    request = Request(prompt_token_ids=(3, 1, 4, 1, 5), params=SamplingParams(max_tokens=11))
    seq, stats, events = run(engine_with(table, oracle(table.next_logits)), request)
    assert seq.output == reference.decode(table.next_logits, fresh(table, request))
    assert [event.num_certain for event in events] == [4, 0, 0]
    assert events[0].sources == (Source.PLAIN,) and stats.num_prompt_steps == 1


@pytest.mark.parametrize("max_tokens", range(1, 8))
def test_limit_inside_an_accepted_run(table, max_tokens):
    request = Request(prompt_token_ids=PROMPT, params=SamplingParams(max_tokens=max_tokens))
    seq, _, _ = run(engine_with(table, oracle(table.next_logits), depth=6), request)
    assert len(seq.output) == max_tokens and seq.finish_reason == "length"


def test_end_of_text_inside_an_accepted_run(table):
    request = Request(prompt_token_ids=PROMPT, params=SamplingParams(max_tokens=50))
    plain = reference.decode(table.next_logits, fresh(table, request))
    for at in range(6):
        eos = plain[at]
        seq, _, _ = run(engine_with(table, oracle(table.next_logits), 6, eos_token_ids=frozenset({eos})), request)
        assert seq.output == plain[: plain.index(eos) + 1] and seq.finish_reason == "stop"


def test_audit_has_teeth(table):
    """A drafter that breaks the contract is caught: the audit is itself tested."""

    class Forger:
        needs = oracle(table.next_logits).needs
        traits = Traits()

        def __init__(self, forge):
            self.forge = forge

        def begin(self, seqs):
            pass

        def propose(self, seqs, budgets):
            return [self.forge(seq) for seq in seqs]

        def observe(self, seen):
            pass

        def end(self, seqs):
            pass

    distribution = torch.full((2, 11), 1 / 11)
    blind = torch.tensor([[True, False], [False, True]])
    forgeries = {
        "node 0": lambda seq: chain([(seq.pending + 1) % 11, 2]),
        "vocabulary": lambda seq: chain([seq.pending, 11]),
        "no distribution": lambda seq: chain([seq.pending, 2], distribution * 2),
        "no mass": lambda seq: chain([seq.pending, 2], torch.nn.functional.one_hot(torch.tensor([3, 3]), 11)),
        "same child": lambda seq: Draft(tokens=torch.tensor([seq.pending, 2, 2]), parents=torch.tensor([-1, 0, 0])),
        "sees": lambda seq: chain([seq.pending, 2], mask=blind),
    }
    request = Request(prompt_token_ids=PROMPT, params=SamplingParams(max_tokens=5))
    for message, forge in forgeries.items():
        with pytest.raises((AuditError, CapabilityError), match=message):
            run(engine_with(table, Forger(forge)), request)


def test_audit_catches_a_careless_loop(table):
    audited = AuditedTarget(table)
    engine = engine_with(table, oracle(table.next_logits))
    seq = engine.add(Request(prompt_token_ids=(3, 1, 4, 1, 5)))
    audited.begin(seq)
    with pytest.raises(AuditError, match="began twice"):
        audited.begin(seq)
    with pytest.raises(AuditError, match="without a pass"):
        audited.commit(seq, [0])
    packed = pack([seq], [chain([seq.pending])])
    with pytest.raises(AuditError, match="positions"):
        audited.forward(replace(packed, positions=packed.positions + 1))
    audited.forward(packed)
    with pytest.raises(AuditError, match="prompt row"):
        audited.commit(seq, [0, 2, 3, 4])
    seq.num_cached = 2
    with pytest.raises(AuditError, match="num_cached"):
        audited.forward(pack([seq], [chain([seq.pending])]))


def fresh(table: TableTarget, request: Request):
    """A sequence that has not been advanced."""
    return engine_with(table, oracle(table.next_logits)).add(request)

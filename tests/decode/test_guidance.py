"""Classifier-free guidance around a target: what it emits, what it keeps of the shadow, and what it leaves behind."""

from dataclasses import replace

import pytest
import torch

from outdraft.cache.config import CacheConfig
from outdraft.core.draft import chain
from outdraft.core.packing import pack
from outdraft.core.policy import Budget
from outdraft.core.request import Request
from outdraft.decode import guidance, reference
from outdraft.decode.guard import GuardedTarget
from outdraft.decode.guidance import GuidedTarget
from outdraft.decode.parts import Parts
from outdraft.drafters.none import NoDrafter
from outdraft.engine.loop import Engine
from outdraft.engine.runner import Runner
from outdraft.options.params import SamplingParams
from outdraft.sampling.guidance import guide, stretch
from outdraft.testing.contract.distribution import Uncoupled
from outdraft.testing.statistics import judge_counts
from outdraft.testing.subject import run
from outdraft.testing.tiny import tiny_model
from outdraft.verify.auto import Auto
from tests.helpers.drifting_target import DriftingTarget
from tests.helpers.fakes import AuditedTarget, ConstantPolicy, RandomTreeDrafter, TableTarget, alternating

VOCAB, SCALE, PROMPT, NEGATIVE = 7, 2.0, (1, 2, 3, 4), (6, 5, 6)


def engine(target, drafter=None, *, depth=4, apart=False, guard=0.0, rule=None) -> Engine:
    wrapped = GuidedTarget(AuditedTarget(target), apart=apart)
    return Engine(
        Parts(
            target=GuardedTarget(wrapped, guard) if guard else wrapped,
            drafter=drafter or NoDrafter(),
            verifier=rule or Auto(),
            policy=ConstantPolicy(Budget(depth=depth)),
        )
    )


def ask(prompt=PROMPT, negative=NEGATIVE, scale=SCALE, **settings) -> Request:
    params = SamplingParams(guidance_scale=scale, **settings)
    return Request(prompt_token_ids=prompt, params=params, negative_prompt_token_ids=negative)


def by_hand(next_logits, request, scale=None):
    """The formula, over a target without a cache: tokens so far -> log probabilities."""
    scale = request.params.guidance_scale if scale is None else scale
    negative = request.negative_prompt_token_ids or request.prompt_token_ids[-1:]

    def combined(tokens):
        if scale == 1:
            return next_logits(tokens)
        with_prompt = next_logits(tokens).log_softmax(-1)
        without = next_logits([*negative, *tokens[len(request.prompt_token_ids) :]]).log_softmax(-1)
        return without + scale * (with_prompt - without)

    return combined


# What it emits

TEXTS = 700


def trees() -> RandomTreeDrafter:
    other = TableTarget(vocab_size=VOCAB, seed=2)
    return RandomTreeDrafter(lambda tokens: torch.softmax(other.next_logits(tokens), -1), max_width=3)


def sampled(distribution_scale: float = SCALE):
    """Unseeded texts of three tokens under the rule that `auto` takes, judged by the guided distributions."""
    target = TableTarget(vocab_size=VOCAB, order=4, sharpness=1.2, seed=4)
    batch = [ask(max_tokens=3, temperature=1.0, seed=seed) for seed in range(TEXTS)]
    outcomes = run(engine(target, trees(), depth=3, rule=Uncoupled(Auto())), batch)
    assert sum(outcome.stats.num_accepted_tokens for outcome in outcomes) > TEXTS / 10
    texts = [tuple(outcome.seq.output) for outcome in outcomes]
    contexts = sorted({text[:i] for text in texts for i in range(3)})
    counts = torch.zeros(len(contexts), VOCAB, dtype=torch.float64)
    for text in texts:
        for i, token in enumerate(text):
            counts[contexts.index(text[:i]), token] += 1
    logits = by_hand(target.next_logits, batch[0], distribution_scale)
    distributions = torch.stack([logits([*PROMPT, *context]).softmax(-1) for context in contexts])
    return judge_counts(counts, distributions, sum(outcome.stats.num_steps for outcome in outcomes))


def test_sampled_texts_have_the_guided_distribution():
    found = sampled()
    assert found.passes, found


@pytest.mark.parametrize("fault", ["not guided", "guided twice", "guided by other tokens"])
def test_a_fault_of_the_distribution_is_noticed(fault, monkeypatch):
    def faulty(conditional, unconditional, scale):
        if fault == "not guided":
            return conditional
        if fault == "guided twice":
            return guide(guide(conditional, unconditional, scale), unconditional, scale)
        return guide(conditional, unconditional.roll(1, 0), scale)

    monkeypatch.setattr(guidance, "guide", faulty)
    assert not sampled().passes


def test_greedy_and_seeded_texts_are_plain_decodings_beside_requests_that_are_not_guided():
    target = TableTarget(vocab_size=VOCAB, order=6, sharpness=1.2, seed=4)
    for settings in ({}, {"temperature": 1.0, "seed": 3}, {"repetition_penalty": 1.4, "min_tokens": 3}):
        batch = [ask(**settings), ask(negative=None, scale=1.0, **settings), ask(negative=None, scale=0.5, **settings)]
        wanted = [
            reference.decode(by_hand(target.next_logits, request), engine(target).prepare(request)) for request in batch
        ]
        assert wanted[0] != wanted[1]
        for drafter in (None, alternating(target.next_logits, (4, 1, 3, 0)), trees()):
            assert [outcome.seq.output for outcome in run(engine(target, drafter), batch)] == wanted


def test_without_a_negative_prompt_it_is_the_last_token_alone():
    target = TableTarget(vocab_size=VOCAB, order=6, seed=4)
    default, given = (run(engine(target), [ask(negative=one)])[0].seq.output for one in (None, PROMPT[-1:]))
    assert default == given != run(engine(target), [ask()])[0].seq.output


def test_logprobs_are_those_of_the_guided_distribution():
    target = TableTarget(vocab_size=VOCAB, order=6, seed=4)
    outcome = run(engine(target), [ask(max_tokens=4, logprobs=0)])[0]
    logits = by_hand(target.next_logits, outcome.seq.request)
    for i, event in enumerate(outcome.events):
        before, token = outcome.seq.tokens[: len(PROMPT) + i], outcome.seq.output[i]
        expected = float(logits(before).log_softmax(-1)[token])
        assert event.logprobs[0].raw == pytest.approx(expected, abs=1e-9)


def test_guided_logits_of_a_target_in_bfloat16_are_not_rounded_again():
    target = TableTarget(vocab_size=VOCAB, order=6, dtype=torch.bfloat16)
    running = engine(target)
    seqs = [running.prepare(request) for request in (ask(), ask(negative=None, scale=1.0))]
    for seq in seqs:
        running.parts.target.begin(seq)
    guided, free = running.parts.target.forward(pack(seqs, [chain([seq.pending]) for seq in seqs])).logits
    wanted = guide(target.next_logits(PROMPT)[None], target.next_logits(NEGATIVE)[None], SCALE)[0]
    assert torch.equal(guided, wanted) and not torch.equal(guided, guided.bfloat16().float())
    assert torch.equal(free.bfloat16(), target.next_logits(PROMPT))


# The formula


def test_the_formula_keeps_what_the_model_masks_and_shows_what_is_broken():
    c = torch.tensor([[1.0, -torch.inf, 0.0, 2.0]])
    u = torch.tensor([[0.0, 0.0, -torch.inf, 1.0]])
    made = guide(c, u, 3.0)
    assert made[0, 1] == -torch.inf and made[0, 2] == c.log_softmax(-1)[0, 2]
    assert made[0, 0] == pytest.approx(float((3 * c.log_softmax(-1) - 2 * u.log_softmax(-1))[0, 0]))
    assert guide(c, u + torch.nan, 3.0).amax(-1).isnan()


def test_a_row_does_not_depend_on_the_rows_beside_it():
    c, u = torch.randn(2, 19, 1001, generator=torch.Generator().manual_seed(0)) * 4
    whole = guide(c, u, 1.7)
    for start, stop in ((0, 1), (3, 4), (5, 11), (18, 19)):
        assert torch.equal(guide(c[start:stop], u[start:stop], 1.7), whole[start:stop])
    assert guide(c.bfloat16(), u.bfloat16(), 1.7).dtype == torch.float32


@pytest.mark.parametrize("scale", [0.0, 0.4, 1.0, 2.5])
def test_no_difference_moves_by_more_than_the_stretch(scale):
    generator = torch.Generator().manual_seed(1)
    c, u, *moves = torch.rand(4, 500, 9, generator=generator, dtype=torch.float64)
    moves = [0.1 * move for move in moves]  # no difference of two moves by more than 0.1
    shift = guide(c + moves[0], u + moves[1], scale) - guide(c, u, scale)
    widest = float((shift.amax(-1) - shift.amin(-1)).max())
    assert 0.05 * stretch(scale) < widest <= 0.1 * stretch(scale) + 1e-12


# Guarded, and the rows behind it

DRIFT = 0.2


@pytest.mark.parametrize("settings", [{}, {"temperature": 1.0, "seed": 3}, {"repetition_penalty": 1.5}])
@pytest.mark.parametrize("alone", [True, False])
def test_under_the_guard_text_is_plain_decodings(settings, alone):
    def drifting():
        return DriftingTarget(drift=DRIFT, coarse=0.5, sharpness=1.5, order=4, seed=5)

    table = drifting()
    batch = [
        ask(prompt=(3, i, 5), scale=scale, negative=negative, max_tokens=40, **settings)
        for i, (scale, negative) in enumerate([(2.0, (1, 9)), (1.0, None), (0.5, None), (3.0, (2, 2, 7, 8))])
    ]
    wanted = [reference.decode(by_hand(table.next_logits, one), engine(table).prepare(one)) for one in batch]
    unsure = 0
    for guard in (DRIFT, 0.0):
        target = drifting()
        running = engine(target, alternating(table.next_logits, (4, 1, 3, 0)), apart=True, guard=guard)
        groups = [[request] for request in batch] if alone else [batch]
        outcomes = [outcome for group in groups for outcome in run(running, group)]
        texts = [outcome.seq.output for outcome in outcomes]
        assert (texts == wanted) == bool(guard)
        unsure += sum(outcome.stats.num_guarded for outcome in outcomes)
    assert unsure


def test_plain_decoding_alone_is_never_replayed():
    target = Runner(tiny_model("llama", vocab=61, dtype=torch.bfloat16, seed=1, exact=False), exact=False)
    outcome = run(engine(target, apart=True, guard=1e9), [ask(max_tokens=12)])[0]
    assert outcome.stats.num_guarded == 0


def test_rows_that_are_not_exact_are_replayed_with_both_prompts():
    """Guesses at random over a network in bfloat16: the text is that of plain decoding, alone or not."""
    decoder = tiny_model("llama", vocab=61, dtype=torch.bfloat16, seed=1, exact=False)
    batch = [
        ask(prompt=(3, i, 5), scale=scale, negative=None, max_tokens=24) for i, scale in ((1, 2.0), (2, 1.0), (3, 0.3))
    ]
    plain = [run(engine(Runner(decoder, exact=False)), [request])[0].seq.output for request in batch]
    table = TableTarget(vocab_size=61, order=1)
    running = engine(Runner(decoder, exact=False), alternating(table.next_logits), apart=True, guard=0.5)
    outcomes = run(running, batch)
    assert [outcome.seq.output for outcome in outcomes] == plain
    assert sum(outcome.stats.num_replayed_rows for outcome in outcomes) > 0


def test_a_shadow_alone_in_its_pass_makes_no_other_rows_plain_decodings():
    decoder = tiny_model("llama", vocab=61, dtype=torch.bfloat16, seed=1, exact=False)
    running = engine(Runner(decoder, exact=False), apart=True)
    guided, free = (running.add(ask(negative=None, scale=scale, max_tokens=200)) for scale in (2.0, 1.0))
    while free.num_output < 4:
        running.step()
    running.cancel(guided)
    alone = pack([free], [chain([free.pending])])
    assert running.parts.target.forward(alone).drifted == {0}


# What it leaves behind


class Full(TableTarget):
    """Has room for one sequence."""

    def begin(self, seq):
        if self.cached:
            raise MemoryError("full")
        return super().begin(seq)


def test_where_there_is_no_room_for_the_shadow_nothing_is_left():
    target = Full(vocab_size=VOCAB)
    guided = GuidedTarget(AuditedTarget(target))
    seq = engine(target).prepare(ask())
    with pytest.raises(MemoryError):
        guided.begin(seq)
    assert not target.cached and not guided._shadows


def test_both_end_with_the_request_and_a_text_that_begins_again_goes_on():
    runner = Runner(tiny_model("llama", vocab=61, dtype=torch.float64, seed=1))
    running = engine(runner)
    guided = running.parts.target
    plain = run(running, [ask(max_tokens=20)])[0].seq.output
    assert not guided._shadows and not guided.target.cached and not guided._certain
    seq = running.add(ask(max_tokens=20))
    for _ in range(8):
        running.step()
    assert len(guided.target.cached) == 2
    guided.end(seq)  # as a scheduler does that needs its memory for others
    assert not guided.target.cached
    seq.num_cached = guided.begin(seq)
    while running.has_work:
        running.step()
    assert seq.output == plain and not guided.target.cached


def test_unguided_requests_have_no_shadow_and_the_same_bits():
    target = TableTarget(vocab_size=VOCAB)
    running = engine(target)
    seq = running.add(ask(negative=None, scale=1.0, logprobs=2))
    running.step()
    assert list(target.cached) == [seq.id]


def test_a_shadow_takes_over_rows_of_an_earlier_one():
    decoder = tiny_model("llama", vocab=61, dtype=torch.float64, seed=1)
    runner = Runner(decoder, cache=CacheConfig(layout="paged", prefixes=True))
    runner.shared.unit = 16
    begun, begin = [], runner.begin
    runner.begin = lambda seq: begun.append(begin(seq)) or begun[-1]
    running, negative = engine(runner), tuple(range(40))
    texts = [run(running, [ask(negative=negative, max_tokens=9)])[0].seq.output for _ in range(2)]
    assert begun == [0, 0, 0, 32] and texts[0] == texts[1]
    run(running, [replace(ask(negative=negative, max_tokens=2), cache_salt="of another user")])
    assert begun[4:] == [0, 0]


@pytest.mark.parametrize("apart", [False, True])
def test_states_are_those_of_the_texts_own_rows(apart):
    """A table's tap is each row's token: those of the texts, and none of a shadow's."""
    target = TableTarget(vocab_size=VOCAB)
    running = engine(target, apart=apart)
    seqs = [running.prepare(request) for request in (ask(), ask(negative=None, scale=1.0), ask(prompt=(2, 5)))]
    for seq in seqs:
        running.parts.target.begin(seq)
    packed = pack(seqs, [chain([seq.pending, 0, 3]) for seq in seqs])
    scored = running.parts.target.forward(packed, (1,))
    assert scored.hidden[1].argmax(-1).tolist() == packed.tokens.tolist()
    assert scored.logits.shape == (9, VOCAB)

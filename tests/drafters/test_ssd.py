"""Saguaro's bent distribution: it is what is drawn from and what is stored, and rejections are foreseen more often."""

import math
from dataclasses import replace

import pytest
import torch
from contracts.sides import inside, twin
from drafters.drafting import sequence
from drafters.test_draft_model import DECODER
from verify.distributions import rule

from outdraft.core.drafter import Traits
from outdraft.core.policy import Budget
from outdraft.core.request import Request
from outdraft.core.target import Needs
from outdraft.decode.parts import Parts
from outdraft.drafters.draft_model import DraftModelDrafter, DraftModelOptions
from outdraft.drafters.shared.composed.ahead import first_path, imagine
from outdraft.drafters.shared.networks.own_model import DraftModel
from outdraft.drafters.ssd import SsdDrafter, SsdOptions, bend, fan_outs, rank_outcomes
from outdraft.engine.loop import Engine
from outdraft.options.errors import ConfigError
from outdraft.options.params import SamplingParams
from outdraft.testing.audit import AuditError
from outdraft.testing.contract.distribution import sampled_distribution_is_the_targets
from outdraft.testing.spec_table import DrafterRow
from outdraft.testing.subject import Subject
from tests.helpers.enumerate_distribution import exact_distribution, target_distribution, total_variation
from tests.helpers.fakes import ConstantPolicy, TableTarget
from tests.helpers.tables import Table, blend, drafts_from, one_sequence, random_table


class Draws:
    """Sampled guesses of a table: a chain of first children, with `width - 1` others beside each."""

    needs = Needs()
    traits = Traits(rewinds=True)

    def __init__(self, distribution, width):
        self.distribution, self.width = distribution, width
        self.asked = []  # (text, depth)

    def begin(self, seqs): ...
    def observe(self, seen): ...
    def end(self, seqs): ...

    def propose(self, seqs, budgets):
        self.asked += [(tuple(seq.tokens), budget.depth) for seq, budget in zip(seqs, budgets, strict=True)]
        return [self._tree(seq, budget.depth) for seq, budget in zip(seqs, budgets, strict=True)]

    def _tree(self, seq, depth):
        parents = [-1]
        for level in range(depth):
            parents += [max(0, 1 + (level - 1) * self.width)] * self.width
        return drafts_from(self.distribution, parents)(seq.tokens, seq.draft_coins(seq))


def one_guess(distribution, *, depth, **options):
    """What ssd drafts where nothing was prepared, as a function that can be enumerated."""

    def propose(tokens, coins):
        seq = replace(one_sequence(tokens), draft_coins=lambda seq: coins)
        drafter = SsdDrafter(SsdOptions(**options), Draws(distribution, 1))
        drafter.begin([seq])
        return drafter.propose([seq], [Budget(depth=depth)])[0]

    return propose


def claiming(propose, distribution):
    """The same guess, said to be drawn from `distribution`."""

    def lying(tokens, coins):
        draft = propose(tokens, coins)
        ids = draft.tokens.tolist()
        return replace(draft, q=torch.stack([distribution([*tokens, *ids[1 : node + 1]]) for node in range(len(ids))]))

    return lying


def test_the_likeliest_entries_are_scaled_and_the_distribution_stays_one():
    distribution, top = torch.tensor([0.5, 0.1, 0.3, 0.1]), [0, 2]
    assert torch.equal(bend(distribution, [], 0.5), distribution)
    assert torch.allclose(bend(distribution, top, 0.5), torch.tensor([0.25, 0.1, 0.15, 0.1]) / 0.6)
    assert torch.allclose(bend(distribution, top, 0.0), torch.tensor([0.0, 0.5, 0.0, 0.5]))
    nowhere_else = torch.tensor([0.6, 0.0, 0.4, 0.0])
    assert torch.equal(bend(nowhere_else, top, 0.0), nowhere_else)
    assert distribution[0] == 0.5, "the draft's own distribution is left as it is"


@pytest.mark.parametrize("name", ["rejection", "block"])
def test_a_round_has_the_targets_distribution_with_the_bent_q_and_with_no_other(name):
    target, draft = random_table(3, 1, 1), random_table(3, 1, 2)
    wanted = target_distribution(target, [0, 0], 3)
    guess = one_guess(draft, depth=2, saguaro=0.3)
    assert total_variation(exact_distribution(rule(name), target, guess, [0, 0], 3), wanted) < 1e-9
    false = exact_distribution(rule(name), target, claiming(guess, draft), [0, 0], 3)
    assert total_variation(false, wanted) > 0.02, "the unbent q must not pass"


def test_whole_texts_have_the_targets_distribution_with_the_bent_q_and_with_no_other(tmp_path, monkeypatch):
    """Back-ups, prepared chains and a draft model's own memory, in ragged batches."""
    row = DrafterRow(drafter="ssd", side=inside(twin, width=2), options={"outcomes": 2, "saguaro": 0.1})
    subject = Subject(row, tmp_path, vocab_size=7)
    sampled_distribution_is_the_targets(subject, num_texts=200)
    redraw = SsdDrafter._redraw

    def lying(self, root, guess, depth):
        return replace(redraw(self, root, guess, depth), distributions=guess.distributions)

    monkeypatch.setattr(SsdDrafter, "_redraw", lying)
    with pytest.raises(AuditError, match="target's distribution"):
        sampled_distribution_is_the_targets(subject, num_texts=100)


@pytest.mark.parametrize(
    ("coupled", "temperature", "saguaro", "is_bent"),
    [(False, 1.0, 0.5, True), (True, 1.0, 0.5, False), (False, 0.0, 0.5, False), (False, 1.0, 1.0, False)],
)
def test_only_sampled_requests_without_shared_noise_are_bent(coupled, temperature, saguaro, is_bent):
    draft = random_table(5, 1, 2)
    drafter = SsdDrafter(SsdOptions(saguaro=saguaro), Draws(draft, 2))
    seq = one_sequence([0, 1], coupled=coupled, temperature=temperature)
    drafter.begin([seq])
    q = drafter.propose([seq], [Budget(depth=3)])[0].q
    assert torch.equal(q[0], draft([0, 1])) is not is_bent
    assert [depth for _, depth in drafter.inner.asked] == ([3] if coupled or not temperature else [1, 1, 1])


def test_sequences_of_one_batch_keep_their_own_lengths():
    """Bent, shared noise, no room at all: each gets its chain."""
    drafter = SsdDrafter(SsdOptions(saguaro=0.5), Draws(random_table(5, 1, 2), 2))
    seqs = [one_sequence([0, 1], id=i, coupled=i == 1) for i in range(4)]
    drafter.begin(seqs)
    drafts = drafter.propose(seqs, [Budget(depth=depth) for depth in (1, 2, 0, 3)])
    assert [draft.num_nodes - 1 for draft in drafts] == [1, 2, 0, 3]
    assert sorted(depth for _, depth in drafter.inner.asked) == [1, 1, 1, 1, 2], "no step for nothing"


def test_a_bent_chain_spends_the_coins_that_a_plain_one_would():
    """One coin for each place, all of the round's root."""
    drafter = SsdDrafter(SsdOptions(saguaro=0.5), Draws(random_table(20, 1, 2), 2))
    for seed in range(5):
        seq = one_sequence([0, 1], seed=seed)
        drafter.begin([seq])
        draft = drafter.propose([seq], [Budget(depth=6)])[0]
        coins = seq.draft_coins(seq)
        assert draft.tokens[1:].tolist() == [coins.draw(draft.q[i], i, i)[0] for i in range(6)]


def test_prepared_for_are_the_likeliest_tokens_that_were_not_drawn():
    """So many of them after each place as the fan-out says; the whole chain's own next token first."""
    table = random_table(12, 1, 2)
    drafter = SsdDrafter(SsdOptions(saguaro=0.2, outcomes=9), Draws(table, 1))
    seq = one_sequence([0, 1])
    drafter.begin([seq])
    (draft,) = drafter.propose([seq], [Budget(depth=2)])
    drafter.ahead([seq], [draft], lambda: False)
    fan = fan_outs(0.8, 1.0, 2, 9)
    path = draft.tokens[1:].tolist()
    prepared = drafter._rounds[seq.id].prepared
    assert next(iter(prepared)) == (*path, int(table([path[1]]).argmax()))
    for k, before in enumerate((1, *path)):
        best = [token for token in table([before]).argsort(descending=True).tolist() if token not in path[k : k + 1]]
        found = [outcome[k] for outcome in prepared if len(outcome) == k + 1]
        assert found == best[: fan[k]] and [*path[:k], found[0]] in [list(outcome[: k + 1]) for outcome in prepared]
    for outcome, (_, guess) in prepared.items():
        assert len(guess.tokens) == 2
        assert torch.allclose(
            guess.distributions[0], bend(table(outcome), table(outcome).topk(fan[0]).indices.tolist(), 0.2)
        )


@pytest.mark.parametrize("params", [{}, {"temperature": 1.0}, {"temperature": 1.0, "coupled": True}])
@pytest.mark.parametrize("cutoff", [{"confidence": 0.9}, {"survival": 0.3}])
def test_a_cutoff_ends_what_is_prepared_and_not_what_it_is_prepared_for(cutoff, params):
    """The token that names an outcome will be text. Behind it stands what a drafter without any past would guess."""
    inner = DraftModelDrafter(DraftModelOptions(width=2), DraftModel(DECODER))
    drafter, budget = SsdDrafter(SsdOptions(), inner), Budget(depth=4, **cutoff)
    seq = sequence([1, 2, 3], **params)
    drafter.begin([seq])
    drafts = drafter.propose([seq], [budget])
    drafter.ahead([seq], drafts, lambda: False)
    prepared = drafter._rounds[seq.id].prepared
    assert len(prepared) > 1
    for outcome, (_, guess) in prepared.items():
        least = [sure < budget.confidence for sure in guess.confidences]
        paths = [math.prod(guess.confidences[: i + 1]) < budget.survival for i in range(len(guess.tokens))]
        ends = [unsure or unlikely for unsure, unlikely in zip(least, paths, strict=True)]
        assert guess.tokens and not any(ends[:-1]) and (ends[-1] or len(ends) == budget.depth), outcome
        if not params:
            assert guess.tokens == first_path(inner.propose([imagine(seq, outcome)], [budget])[0]).tokens


def test_nothing_is_prepared_where_there_is_no_room_for_it():
    """The text may have two tokens more: the pass under way may write both, and then no guess has any room."""
    drafter = SsdDrafter(SsdOptions(), DraftModelDrafter(DraftModelOptions(width=2), DraftModel(DECODER)))
    seq = sequence([1, 2, 3], max_len=5)
    drafter.begin([seq])
    drafts = drafter.propose([seq], [Budget(depth=1)])
    drafter.ahead([seq], drafts, lambda: False)
    prepared = drafter._rounds[seq.id].prepared
    assert {len(outcome) for outcome in prepared} == {1} and all(guess.tokens for _, guess in prepared.values())


@pytest.mark.parametrize(("acceptance", "decay"), [(0.5, 1.0), (0.8, 1.0), (0.8, 0.5), (0.6, 2.0)])
def test_the_fan_out_is_a_geometric_series_and_the_best_of_all(acceptance, decay):
    """Within one of the published formula, and no other split of as many outcomes misses less."""
    depth, count = 4, 40
    found = fan_outs(acceptance, decay, depth, count)
    wanted = [acceptance ** (k / (1 + decay)) for k in range(depth)]
    wanted.append(acceptance ** (depth / (1 + decay)) * (1 - acceptance) ** (-1 / (1 + decay)))
    wanted = [count * share / sum(wanted) for share in wanted]
    assert sum(found) == count and all(abs(ours - theirs) <= 1.2 for ours, theirs in zip(found, wanted, strict=True))
    assert found[:depth] == sorted(found[:depth], reverse=True) and found[0] > found[depth - 1]

    def misses(split):
        chances = [acceptance**k * (1 - acceptance) for k in range(depth)] + [acceptance**depth]
        return sum(chance * split[k] ** -decay for k, chance in enumerate(chances))

    exact = misses(wanted)
    assert misses(found) == pytest.approx(exact, rel=0.02) and misses([count // (depth + 1)] * (depth + 1)) > exact


def test_outcomes_that_are_not_there_leave_their_room_to_others():
    assert rank_outcomes(0.8, 1.0, [1, 0, 2], 10) == [(2, 1), (0, 1), (2, 2)]
    assert rank_outcomes(0.8, 1.0, [0], 3) == []


def test_hits_are_counted_by_rank_and_acceptance_is_learned():
    """A second guess that was prepared for is a hit of rank 2; what the rule says moves the fan-out."""
    target = TableTarget(vocab_size=20, order=1, sharpness=1.5)
    p = Table(torch.softmax(target.table, -1), 1)
    drafter = SsdDrafter(SsdOptions(outcomes=12), Draws(blend(p, random_table(20, 1, 3), 0.7), 1))
    parts = Parts(target=target, drafter=drafter, verifier=rule("rejection"), policy=ConstantPolicy(Budget(depth=3)))
    engine = Engine(parts)
    engine.add(Request(prompt_token_ids=(3,), params=SamplingParams(max_tokens=60, temperature=1.0, seed=1)))
    learned = set()
    while engine.has_work:
        engine.step()
        learned |= {now.acceptance for now in drafter._rounds.values()}
    assert sum(drafter.hits_by_rank) == drafter.num_hits
    assert drafter.hits_by_rank[0] > 3 and sum(drafter.hits_by_rank[1:]) > 0
    assert 0.8 in learned and len(learned) > 5


@pytest.mark.parametrize("saguaro", [-0.1, 1.5, float("nan")])
def test_a_factor_out_of_range_is_refused(saguaro):
    with pytest.raises(ConfigError, match=rf"saguaro={saguaro}: must be between 0 and 1 \(1 leaves"):
        SsdOptions(saguaro=saguaro)


def counted(factor, *, texts=8, length=50):
    """Shares: of drafted tokens accepted, of rejections that were prepared for, of all rounds that were (F = k = 3)."""
    target = TableTarget(vocab_size=20, order=1, sharpness=1.5)
    other = TableTarget(vocab_size=20, order=1, sharpness=1.5, seed=1)
    p, unlike = (Table(torch.softmax(one.table, -1), 1) for one in (target, other))
    drafter = SsdDrafter(SsdOptions(outcomes=12, saguaro=factor), Draws(blend(p, unlike, 0.7), 3))
    policy = ConstantPolicy(Budget(depth=3))
    engine = Engine(Parts(target=target, drafter=drafter, verifier=rule("rejection"), policy=policy))
    drafted = accepted = rejections = foreseen = 0
    for seed in range(texts):
        params = SamplingParams(max_tokens=length, temperature=1.0, seed=seed)
        engine.add(Request(prompt_token_ids=(3,), params=params))
        was_rejected = False
        while engine.has_work:
            hits = drafter.num_hits
            (event,) = engine.step()
            rejections += was_rejected
            foreseen += was_rejected and drafter.num_hits > hits
            was_rejected = event.rejected
            drafted += event.num_draft_tokens
            accepted += event.num_accepted
    return accepted / drafted, foreseen / rejections, drafter.num_hits / drafter.num_rounds


def test_bending_makes_rejections_more_frequent_and_foreseen():
    """A factor of almost 1 prepares for the same likeliest tokens, so that what rises is the bending's doing."""
    (acceptance, foreseen, hits), (bent_acceptance, bent_foreseen, bent_hits) = counted(0.999), counted(0.3)
    assert bent_acceptance < acceptance - 0.1
    assert bent_foreseen > foreseen + 0.15
    assert bent_hits > hits + 0.1

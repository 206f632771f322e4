"""What a request decides itself: budgets with its arm and depth, and each draft judged by the rule of its request."""

from dataclasses import replace

import pytest
import torch

from outdraft.core.draft import chain
from outdraft.core.packing import pack
from outdraft.core.policy import Budget
from outdraft.core.registry import find, names
from outdraft.decode.asked import RulesByRequest, as_asked
from outdraft.decode.distributions import target_distributions
from outdraft.decode.guesses import is_as_planned
from outdraft.options.speculative import Settled
from outdraft.sampling.coins import verifier_coins
from outdraft.sampling.draft_coins import draft_coins
from outdraft.testing.accept_all import accept_all
from outdraft.verify.shared.per_draft import PerDraft
from tests.helpers.enumerate_distribution import exact_distribution, target_distribution, total_variation
from tests.helpers.tables import drafts_from, one_sequence, random_table, score

TARGET, DRAFTER = random_table(3, 2, 1), random_table(3, 2, 2)
CHAIN, TREE = (-1, 0, 1), (-1, 0, 0, 1)
LOSSLESS = [name for name in names("verifier") if find("verifier", name).lossless and name != "greedy"]


def shape_of(name):
    return TREE if "tree" in find("verifier", name).judges else CHAIN


def asked_for(rule, id=0, **settings):
    seq = one_sequence([0, 1, 2, 0][: 2 + id % 3], seed=id, id=id, **settings)
    seq.settled = Settled(rule=rule)
    seq.coupled = rule == "coupled"
    return seq


def own_rule():
    return RulesByRequest(find("verifier", "auto").build(None), lossless=True)


class InCompany:
    """The rule of one sequence, asked in a pass with neighbours under other rules."""

    lossless = True

    def __init__(self, name, rules):
        self.name, self.rules = name, rules

    def couples(self, request):
        return False

    def __call__(self, packed, p, coins):
        seqs = [asked_for(None, 5), packed.seqs[0], asked_for("sequential", 6)]
        seqs[1].settled = Settled(rule=self.name)
        others = [drafts_from(DRAFTER, CHAIN)(seq.tokens, draft_coins(seq)) for seq in (seqs[0], seqs[2])]
        together = score(TARGET, seqs, [others[0], packed.drafts[0], others[1]])
        return self.rules(*together, [verifier_coins(seqs[0]), coins[0], verifier_coins(seqs[2])])[1:2]


@pytest.mark.parametrize("name", LOSSLESS)
def test_every_rule_is_exact_beside_others(name):
    propose = drafts_from(DRAFTER, shape_of(name))
    found = exact_distribution(InCompany(name, own_rule()), TARGET, propose, [0, 1], 3, coupled=name == "coupled")
    assert total_variation(found, target_distribution(TARGET, [0, 1], 3)) < 1e-9


def test_a_lossy_rule_in_its_place_is_noticed():
    rules = own_rule()
    rules._others["block"] = PerDraft(accept_all)
    found = exact_distribution(InCompany("block", rules), TARGET, drafts_from(DRAFTER, CHAIN), [0, 1], 3)
    assert total_variation(found, target_distribution(TARGET, [0, 1], 3)) > 0.05


def test_a_batch_under_many_rules_is_its_members():
    rules = own_rule()
    seqs = [asked_for(name, i) for i, name in enumerate([None, *LOSSLESS, None, *LOSSLESS])]
    drafts = [drafts_from(DRAFTER, shape_of(seq.settled.rule or "auto"))(seq.tokens, draft_coins(seq)) for seq in seqs]
    together = rules(*score(TARGET, seqs, drafts), [verifier_coins(seq) for seq in seqs])
    for seq, draft, verdict in zip(seqs, drafts, together, strict=True):
        rule = find("verifier", seq.settled.rule or "auto")
        alone = rule.build(rule.options())(*score(TARGET, [seq], [draft]), [verifier_coins(seq)])
        assert [verdict] == alone, seq.settled.rule


def test_a_rule_that_no_request_names_is_not_built():
    rules = own_rule()
    seqs = [asked_for(None, 0), asked_for("block", 1)]
    drafts = [drafts_from(DRAFTER, CHAIN)(seq.tokens, draft_coins(seq)) for seq in seqs]
    rules(*score(TARGET, seqs[:1], drafts[:1]), [verifier_coins(seqs[0])])
    assert not rules._others
    rules(*score(TARGET, seqs, drafts), [verifier_coins(seq) for seq in seqs])
    assert list(rules._others) == ["block"]
    assert rules.of("block") is rules.of("block")


def test_prompt_chunks_beside_other_rules_have_no_verdict():
    reading = one_sequence([0, 1, 2, 3], id=9)
    reading.num_cached, reading.turn = 0, replace(reading.turn, max_chunk=2)
    seqs = [asked_for("block", 0), reading, asked_for(None, 1)]
    drafts = [drafts_from(DRAFTER, CHAIN)(seq.tokens, draft_coins(seq)) for seq in (seqs[0], seqs[2])]
    packed = pack(seqs, [drafts[0], None, drafts[1]])
    _, p = score(TARGET, [seqs[0], seqs[2]], drafts)
    assert len(own_rule()(packed, p, [verifier_coins(seqs[0]), verifier_coins(seqs[2])])) == 2


def test_a_soft_engine_is_not_soft_for_a_request_with_a_rule_of_its_own():
    """Otherwise `block` would sample where a greedy request wants the best token."""
    seqs = [one_sequence([0, 1], temperature=0, id=0), asked_for("block", 1, temperature=0)]
    packed = pack(seqs, [chain([seq.pending]) for seq in seqs])
    p = target_distributions(packed, torch.tensor([[0.0, 1.0, 2.0], [0.0, 1.0, 2.0]]), soft=True)
    assert p[1].tolist() == [0, 0, 1] and 0 < float(p[0].max()) < 1


def test_budgets():
    seq = one_sequence([0, 1], id=0)
    planned = Budget(depth=4, arm=0, confidence=0.5, resting=frozenset({1}))
    assert as_asked(seq, planned) is planned

    seq.settled = Settled(arm=2, resting=frozenset({0, 1}))
    assert as_asked(seq, planned) == replace(planned, arm=2, resting=frozenset({0, 1}))

    seq.settled = Settled(arm=1, depth=7)
    assert as_asked(seq, Budget(depth=0, resting=frozenset({1}))) == Budget(depth=7, arm=1)
    assert as_asked(seq, Budget(depth=0)).depth == 7
    seq.request = replace(seq.request, params=type(seq.request.params)(max_tokens=4))
    assert as_asked(seq, planned).depth == 4 - seq.num_output - 1


@pytest.mark.parametrize(
    ("planned", "asked", "expected"),
    [
        (Budget(depth=4), Budget(depth=4, confidence=0.5), True),
        (Budget(depth=4), Budget(depth=4, arm=2), False),
        (Budget(depth=4), Budget(depth=0), False),
        (Budget(depth=0), Budget(depth=7), False),
        (Budget(depth=0), Budget(depth=0, arm=2), True),  # no drafter guesses, so it does not matter which
    ],
)
def test_what_was_planned(planned, asked, expected):
    assert is_as_planned(planned, asked) is expected

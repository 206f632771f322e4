"""Rules in the engine's hands: ragged batches, prompt chunks, probe nodes, rounding, and what they refuse."""

from dataclasses import replace

import pytest
import torch
from verify.distributions import CHAINS, PAIRS, RULES, TREES, judged_by, rule

from outdraft.core.draft import Draft, Role, chain
from outdraft.core.packing import pack
from outdraft.core.request import Request
from outdraft.options.errors import CapabilityError, NumericsError
from outdraft.options.params import SamplingParams
from outdraft.sampling.coins import KeyedCoins, verifier_coins
from outdraft.sampling.draft_coins import draft_coins
from tests.helpers.enumerate_distribution import BranchingCoins, Chance
from tests.helpers.tables import drafts_from, one_sequence, random_table, score

TARGET, DRAFTER = PAIRS["similar"]
P = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)


class ScriptedCoins:
    """Answers flips from a list, and remembers what was asked."""

    def __init__(self, *answers: bool):
        self.answers, self.flips, self.distributions = list(answers), [], []

    def flip(self, probability, ordinal):
        self.flips.append((probability, ordinal))
        return self.answers.pop(0)

    def draw(self, distribution, depth):
        self.distributions.append((distribution, depth))
        return int(distribution.argmax())


def mixed_batch(shapes, first_seed=0):
    """Sequences of different lengths, with drafts of these shapes, sampled and not by turns."""
    seqs, drafts = [], []
    for i, parents in enumerate(shapes):
        seq = one_sequence([0, 1, 2, 3][: 1 + i % 4], seed=first_seed + i, id=i)
        seqs.append(seq)
        drafts.append(drafts_from(DRAFTER, parents, sampled=i % 2 == 0)(seq.tokens, draft_coins(seq)))
    return seqs, drafts


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("first_seed", range(0, 60, 6))
def test_a_batch_is_its_members(name, first_seed):
    verifier, shapes = rule(name), [*judged_by(name).values()]
    seqs, drafts = mixed_batch([*shapes, *shapes[:3]], first_seed)
    together = verifier(*score(TARGET, seqs, drafts), [verifier_coins(seq) for seq in seqs])
    alone = [
        verifier(*score(TARGET, [seq], [draft]), [verifier_coins(seq)])[0]
        for seq, draft in zip(seqs, drafts, strict=True)
    ]
    assert together == alone
    backwards = verifier(*score(TARGET, seqs[::-1], drafts[::-1]), [verifier_coins(seq) for seq in seqs[::-1]])
    assert backwards[::-1] == together


def test_prompt_chunks_have_no_verdict():
    seqs, drafts = mixed_batch([CHAINS["three"], TREES["wide"], CHAINS["one"]])
    whole = rule("auto")(*score(TARGET, seqs, drafts), [verifier_coins(seq) for seq in seqs])
    _, p = score(TARGET, seqs, drafts)
    reading = replace(one_sequence([0, 1, 2, 3], id=9), num_cached=0)
    packed = pack([seqs[0], reading, *seqs[1:]], [drafts[0], chain([3]), *drafts[1:]], max_chunk=2)
    assert packed.drafts[1] is None
    assert rule("auto")(packed, p, [verifier_coins(seq) for seq in seqs]) == whole


def test_a_pass_of_prompt_chunks_alone_has_no_verdicts():
    packed = pack([replace(one_sequence([0, 1, 2, 3]), num_cached=0)], [chain([3])], max_chunk=2)
    for name in ("greedy", *RULES):
        assert rule(name)(packed, torch.zeros(0, 4), []) == []


def test_auto_chooses_by_request_then_by_draft():
    cases = [
        ("greedy", one_sequence([0], temperature=0), TREES["two levels"], True),
        ("coupled", one_sequence([0], coupled=True), TREES["two levels"], True),
        ("sequential", one_sequence([0]), TREES["two levels"], False),
        ("block", one_sequence([0]), CHAINS["three"], True),
        ("traversal", one_sequence([0]), TREES["two levels"], True),
    ]
    auto = rule("auto")
    seqs, drafts, expected = [], [], []
    for name, template, parents, sampled in cases:
        for seed in range(30):
            seq = replace(template, seed=seed, id=len(seqs))
            draft = drafts_from(DRAFTER, parents, sampled=sampled)([0], draft_coins(seq))
            expected += rule(name)(*score(TARGET, [seq], [draft]), [verifier_coins(seq)])
            seqs.append(seq)
            drafts.append(draft)
    assert auto(*score(TARGET, seqs, drafts), [verifier_coins(seq) for seq in seqs]) == expected


def test_who_couples():
    def couples(name, **params):
        return rule(name).couples(Request(prompt_token_ids=(1,), params=SamplingParams(**params)))

    assert couples("coupled", temperature=1.0)
    assert couples("auto", temperature=1.0, seed=3)
    assert not couples("auto", temperature=1.0)
    assert not couples("auto", temperature=0.0, seed=3)
    others = set(RULES) - {"auto", "coupled"}
    assert not any(couples(name, temperature=1.0, seed=3) for name in others)


@pytest.mark.parametrize("name", ["rejection", "block"])
def test_chain_rules_refuse_trees(name):
    seqs, drafts = mixed_batch([TREES["wide"]])
    with pytest.raises(CapabilityError, match=rf"'{name}'.*sequence 0.*node 0 has 3 children.*'traversal'"):
        rule(name)(*score(TARGET, seqs, drafts), [verifier_coins(seqs[0])])


def test_greedy_refuses_a_temperature():
    seqs, drafts = mixed_batch([CHAINS["one"]])
    with pytest.raises(CapabilityError, match=r"'greedy'.*temperature 1.0.*'auto'"):
        rule("greedy")(*score(TARGET, seqs, drafts), [verifier_coins(seqs[0])])
    with pytest.raises(CapabilityError, match=r"temperature 1\.0"):
        rule("greedy").couples(seqs[0].request)


@pytest.mark.parametrize("name", RULES)
def test_nan_is_named(name):
    seqs, drafts = mixed_batch([CHAINS["one"], CHAINS["three"]])
    packed, p = score(TARGET, seqs, drafts)
    p[packed.node_starts[1] + 2, 1] = torch.nan
    with pytest.raises(NumericsError, match="node 2 of sequence 1"):
        rule(name)(packed, p, [verifier_coins(seq) for seq in seqs])


def test_q_over_another_vocabulary_is_refused():
    draft = chain([0, 1], q=torch.full((2, 3), 1 / 3))
    with pytest.raises(CapabilityError, match=r"q of shape \[2, 3\].*\[2, 4\]"):
        rule("block")(*score(TARGET, [one_sequence([0])], [draft]), [KeyedCoins(0, 0)])


@pytest.mark.parametrize("name", ["rejection", "block"])
@pytest.mark.parametrize("wrong", [-1, 5])
def test_a_guess_outside_the_vocabulary_is_refused(name, wrong):
    """Read as a place in p it would be another node's token."""
    packed, p = score(TARGET, [one_sequence([0])], [chain([0, 1, 2])])
    packed.trees[0].take([0, wrong, 2])
    with pytest.raises(CapabilityError, match=rf"sequence 0 guesses \[{wrong}, 2\]"):
        rule(name)(packed, p, [KeyedCoins(0, 0)])


@pytest.mark.parametrize("name", ["greedy", *RULES])
def test_probe_nodes_are_never_accepted(name):
    """The right guess as a probe, with a token id that no vocabulary has beside it: only the pending node counts."""
    best = int(TARGET([0]).argmax())
    draft = Draft(
        tokens=torch.tensor([0, best, 99]),
        parents=torch.tensor([-1, 0, 0]),
        roles=torch.tensor([Role.VERIFY, Role.PROBE, Role.PROBE]),
    )
    for seed in range(20):
        seq = one_sequence([0], seed=seed, temperature=0 if name == "greedy" else 1)
        packed = pack([seq], [draft])
        p = torch.stack([TARGET([0])] * 3)
        (verdict,) = rule(name)(packed, p, [verifier_coins(seq)])
        assert verdict.path == ()
        assert verdict.bonus


@pytest.mark.parametrize("name", RULES)
def test_a_rejection_that_only_rounding_allows_falls_back_to_p(name):
    """p = q: the coin is sure, yet these coins say no, and the residual has no mass."""
    seq, draft = one_sequence([0]), chain([0, 3], q=P.repeat(2, 1))
    coins = ScriptedCoins(False, False)
    (verdict,) = rule(name)(pack([seq], [draft]), P.repeat(2, 1), [coins])
    distribution, depth = coins.distributions[-1]
    assert torch.isfinite(distribution).all()
    assert distribution.sum() > 0
    assert (verdict.token, depth) == (int(distribution.argmax()), len(verdict.path))


def test_the_extra_token_comes_from_the_right_distribution():
    q = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
    seq, draft = one_sequence([0]), chain([0, 0], q=q.repeat(2, 1))
    coins = ScriptedCoins(False)
    (verdict,) = rule("rejection")(pack([seq], [draft]), P.repeat(2, 1), [coins])
    assert coins.flips == [(pytest.approx(0.25), 1)]
    assert torch.allclose(coins.distributions[0][0], torch.tensor([0, 0, 0.25, 0.75], dtype=torch.float64))
    assert (verdict.path, verdict.bonus) == ((), False)
    (verdict,) = rule("rejection")(pack([seq], [draft]), P.repeat(2, 1), [ScriptedCoins(True)])
    assert (verdict.path, verdict.bonus) == ((1,), True)


@pytest.mark.parametrize("name", RULES)
def test_single_precision_is_enough(name):
    """Float32 distributions, with a q in another type: the verdicts of float64, but for a coin within the rounding."""
    differing = 0
    shapes = [*judged_by(name).values()]
    seqs, drafts = mixed_batch(shapes * 20)
    packed, p = score(TARGET, seqs, drafts)
    coins = [verifier_coins(seq) for seq in seqs]
    for a, b in zip(rule(name)(packed, p, coins), rule(name)(packed, p.float(), coins), strict=True):
        differing += a != b
    assert differing <= 1


def test_branching_coins_catch_a_coin_used_twice():
    coins = BranchingCoins(Chance([]))
    coins.flip(0.5, 1)
    with pytest.raises(AssertionError, match="flip 1 was asked twice"):
        coins.flip(0.5, 1)
    coins.draw(P, 0)
    with pytest.raises(AssertionError, match="draw 0 was asked twice"):
        coins.draw(P, 0)


def test_a_useless_drafter_costs_nothing_but_time():
    """Guesses that the target forbids: one exact token a round, never none."""
    target, drafter = PAIRS["disjoint"]
    for name in RULES:
        for parents in judged_by(name).values():
            seq = one_sequence([0, 1])
            draft = drafts_from(drafter, parents)(seq.tokens, draft_coins(seq))
            (verdict,) = rule(name)(*score(target, [seq], [draft]), [verifier_coins(seq)])
            assert verdict.path == ()
            assert float(target(seq.tokens)[verdict.token]) > 0


def test_a_large_vocabulary_and_a_long_chain():
    target, drafter = random_table(2000, 1, 1), random_table(2000, 1, 2)
    for name in RULES:
        seq = one_sequence([7], seed=5)
        draft = drafts_from(drafter, tuple(range(-1, 16)))(seq.tokens, draft_coins(seq))
        (verdict,) = rule(name)(*score(target, [seq], [draft]), [verifier_coins(seq)])
        assert 0 <= verdict.token < 2000

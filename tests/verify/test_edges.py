"""Edges of the rules that a mutation run found untested: values in between, guesses made twice, bad rows."""

import math

import pytest
import torch
from verify.distributions import PAIRS, rule
from verify.measuring import CONTEXT, deviation

from outdraft.core.draft import Draft, Role, chain
from outdraft.options.errors import NumericsError
from outdraft.verify.shared.chain import rows_of
from outdraft.verify.shared.proposal import ratio
from tests.helpers.enumerate_distribution import rounds
from tests.helpers.tables import Table, one_sequence, score

P = Table(torch.tensor([[0.5, 0.4, 0.1]], dtype=torch.float64), 0)


def guess(*tokens, sure=None):
    """The same deterministic siblings below the pending token, whatever the coins."""
    ids = torch.tensor([CONTEXT[-1], *tokens])
    parents = torch.tensor([-1] + [0] * len(tokens))
    confidence = None if sure is None else torch.tensor([1.0, *sure], dtype=torch.float64)
    return lambda context, coins: Draft(tokens=ids, parents=parents, confidence=confidence)


def chance_of(verifier, propose, temperature=1.0):
    """The probability that a guess is accepted."""
    found = rounds(verifier, P, propose, CONTEXT, temperature=temperature)
    return sum(probability for probability, outcome in found if len(outcome.emitted) > 1)


@pytest.mark.parametrize(("leniency", "kept"), [(1.0, False), (1.2, False), (1.3, True), (1.5, True), (2.0, True)])
def test_leniency_is_a_factor_for_greedy_requests_too(leniency, kept):
    """The target gives 0.4, the drafter was sure by 0.5: a factor above 1.25 keeps it, however small beyond 1."""
    accepted = chance_of(rule("leniency", leniency=leniency), guess(1, sure=[0.5]), temperature=0)
    assert accepted == (1 if kept else 0 if leniency > 1 else pytest.approx(0.4))


@pytest.mark.parametrize("name", ["sequential", "multi_draft", "traversal", "coupled"])
@pytest.mark.parametrize("which", PAIRS)
def test_a_guess_made_twice_is_tried_once(name, which):
    assert deviation(rule(name), PAIRS[which], (-1, 0, 0), propose=guess(1, 1), horizon=2) < 1e-9


def test_a_deterministic_guess_counts_as_certain():
    """Its q is 1: a ratio of 0.45 asks p for 0.45, and so it does of token 0 alone."""
    gate = rule("gated", ratio=0.45, exact=False)
    assert (chance_of(gate, guess(0)), chance_of(gate, guess(1))) == (1, 0)


def test_the_ratio_of_what_is_forbidden_or_was_never_drawn():
    assert (ratio(0.0, 0.5), ratio(0.5, 0.0), ratio(0.0, 0.0)) == (0, 0, 0)
    assert (ratio(0.25, 0.5), ratio(0.5, 0.25)) == (0.5, 1)


@pytest.mark.parametrize("bad", [(0, 0), (0, 2), (1, 1)])
def test_the_row_that_is_no_distribution_is_named(bad):
    seqs = [one_sequence(CONTEXT, id=i) for i in (0, 1)]
    packed, p = score(P, seqs, [guess(0, 1)(None, None), guess(1)(None, None)])
    p[packed.node_starts[bad[0]] + bad[1]] = torch.nan
    with pytest.raises(NumericsError, match=f"node {bad[1]} of sequence {bad[0]} "):
        rule("rejection" if bad[0] else "sequential")(packed, p, [None, None])


def test_rows_of_a_chain_are_those_of_its_nodes_and_a_view_where_they_stand_side_by_side():
    p = torch.arange(18).view(6, 3)
    assert rows_of(p, [1, 2, 3]).data_ptr() == p[1].data_ptr()
    for nodes in ([0], [1, 2, 3], [0, 2], [0, 4], [1, 2, 4], [0, 1, 5]):
        assert torch.equal(rows_of(p, nodes), torch.stack([p[node] for node in nodes]))


@pytest.mark.parametrize("name", ["top_beta", "typical"])
def test_a_tree_of_probes_alone_leaves_the_targets_own_token_after_the_pending_one(name):
    """A probe's row says what comes after the probe, and its token is nothing to keep."""
    draft = Draft(
        tokens=torch.tensor([CONTEXT[-1], 0]),
        parents=torch.tensor([-1, 0]),
        roles=torch.tensor([Role.VERIFY, Role.PROBE]),
    )
    packed, p = score(P, [one_sequence(CONTEXT, temperature=0.0)], [draft])
    p[1] = torch.tensor([0.0, 0.0, 1.0])
    (verdict,) = rule(name)(packed, p, [None])
    assert (list(verdict.path), verdict.token) == ([], 0)


@pytest.mark.parametrize(("behind", "kept"), [(2.9, 1), (3.1, 0)])
def test_top_beta_keeps_up_to_three_nats_behind_the_best_by_default(behind, kept):
    best = 1 / (1 + math.exp(-behind))
    target = Table(torch.tensor([[best, 1 - best]], dtype=torch.float64), 0)
    found = rounds(rule("top_beta"), target, guess(1), CONTEXT, temperature=0)
    assert sum(probability for probability, outcome in found if len(outcome.emitted) > 1) == kept


@pytest.mark.parametrize("name", ["auto", "block", "multi_draft", "sequential", "traversal"])
def test_a_guess_may_be_deeper_than_pythons_stack(name):
    sure = Table(torch.tensor([[0.0, 1.0]], dtype=torch.float64), 0)
    seq = one_sequence(CONTEXT, seed=1)
    packed, p = score(sure, [seq], [chain([CONTEXT[-1]] + [1] * 1500)])
    (verdict,) = rule(name)(packed, p, [seq.coins(seq)])
    assert len(verdict.path) == 1500

"""The bonus token, where the drafter has drafted on behind its last node: exactly p, and kept as often as p allows."""

from dataclasses import replace

import pytest
import torch
from verify.distributions import PAIRS, rule
from verify.measuring import CONTEXT, deviation

from outdraft.core.draft import Continuation, chain, host_tree
from outdraft.options.errors import CapabilityError
from outdraft.sampling.draft_coins import draft_coins
from outdraft.verify import block, rejection, traversal
from outdraft.verify.shared import in_turn, relaxed, siblings
from outdraft.verify.shared.proposal import draw_bonus
from tests.helpers.enumerate_distribution import rounds
from tests.helpers.tables import drafts_from, one_sequence, score

RULES = {
    "auto": "two",
    "block": "two",
    "gated": "two",
    "multi_draft": "fork",
    "rejection": "two",
    "sequential": "fork",
    "traversal": "fork",
}
SHAPES = {"two": (-1, 0, 1), "fork": (-1, 0, 0)}
USERS = (block, rejection, traversal, in_turn, relaxed, siblings)


def continued(drafter, parents, *, sampled=True):
    """Drafts of a table that say what it would write behind their last node."""

    def propose(tokens, coins):
        draft = drafts_from(drafter, parents)(tokens, coins)
        tree = host_tree(draft)
        last = draft.num_nodes - 1
        path = [*tokens, *(tree.tokens[node] for node in tree.path(last))]
        q = drafter(path)
        token = coins.draw(q, tree.depths[last], last)[0] if sampled else int(q.argmax())
        return replace(draft, continuation=Continuation(token=token, q=q if sampled else None))

    return propose


@pytest.mark.parametrize("sampled", [True, False], ids=["sampled", "deterministic"])
@pytest.mark.parametrize(("name", "shape"), RULES.items())
def test_output_has_the_targets_distribution(name, shape, sampled):
    for which in ("random", "q has zeros", "both have zeros"):
        pair = PAIRS[which]
        propose = continued(pair[1], SHAPES[shape], sampled=sampled)
        assert deviation(rule(name), pair, SHAPES[shape], propose=propose) < 1e-9, which


def keep_always(case, p):
    return case.continuation.token


def forget_the_residual(case, p):
    guess = case.continuation
    if case.coins.flip(min(1.0, float(p[guess.token] / guess.q[guess.token])), 99):
        return guess.token
    return case.coins.draw(p, case.tree.depths[-1])


@pytest.mark.parametrize("planted", [keep_always, forget_the_residual])
@pytest.mark.parametrize(("name", "shape"), RULES.items())
def test_a_lossy_bonus_is_caught(name, shape, planted, monkeypatch):
    def lossy(case, node):
        return planted(case, case.p[node]) if node == len(case.tree.parents) - 1 else draw_bonus(case, node)

    for user in USERS:
        monkeypatch.setattr(user, "draw_bonus", lossy)
    pair = PAIRS["random"]
    assert deviation(rule(name), pair, SHAPES[shape], propose=continued(pair[1], SHAPES[shape])) > 1e-3


def test_another_q_than_the_one_drawn_from_is_caught():
    target, drafter = PAIRS["random"]
    honest = continued(drafter, SHAPES["two"])

    def lying(tokens, coins):
        draft = honest(tokens, coins)
        return replace(draft, continuation=replace(draft.continuation, q=target([*tokens, *draft.tokens.tolist()[1:]])))

    assert deviation(rule("rejection"), (target, drafter), SHAPES["two"], propose=lying) > 1e-3


@pytest.mark.parametrize("name", ["rejection", "sequential", "multi_draft", "traversal", "block"])
def test_it_is_kept_with_the_overlap_of_p_and_q(name):
    """Behind nothing at all, as after a miss: sum of min(p, q), the most that any rule can reach."""
    target, drafter = PAIRS["random"]
    kept = 0.0
    for mass, outcome in rounds(rule(name), target, continued(drafter, (-1,)), CONTEXT):
        kept += mass * (outcome.verdict.token == outcome.draft.continuation.token)
    assert kept == pytest.approx(float(torch.minimum(target(CONTEXT), drafter(CONTEXT)).sum()))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_greedy_and_coupled_verdicts_do_not_look_at_it(temperature):
    target, drafter = PAIRS["random"]
    seq = one_sequence(CONTEXT, temperature=temperature, coupled=True, seed=5)
    draft = continued(drafter, SHAPES["two"])(seq.tokens, draft_coins(seq))
    found = []
    for given in (draft, replace(draft, continuation=None)):
        packed, p = score(target, [seq], [given])
        found.append(rule("auto")(packed, p, [seq.coins(seq)]))
    assert found[0] == found[1]


@pytest.mark.parametrize("bad", [Continuation(token=4), Continuation(token=-1), Continuation(token=0, q=torch.ones(3))])
def test_one_that_is_no_token_of_the_target_is_refused(bad):
    seq = one_sequence(CONTEXT)
    packed, p = score(PAIRS["random"][0], [seq], [replace(chain([seq.pending]), continuation=bad)])
    with pytest.raises(CapabilityError, match="behind the draft of sequence 0 stands token"):
        rule("auto")(packed, p, [seq.coins(seq)])

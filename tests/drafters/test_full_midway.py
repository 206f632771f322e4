"""Memory that is full in the middle of a guess: the tokens that were drawn are judged, whatever they are.

A guess ends at an unsure token. If a surer one asked for room that is not there and its whole guess were dropped, the
unsure ones would be judged too often: the text would have another distribution. Every case is enumerated, and the
dropping is planted to see that it would be found.
"""

from dataclasses import replace

import pytest
import torch

from outdraft.core.draft import chain
from outdraft.core.drafter import Traits
from outdraft.core.packing import pack
from outdraft.core.policy import Budget
from outdraft.core.registry import find
from outdraft.core.target import Needs
from outdraft.decode.executor import RunAhead
from outdraft.drafters import pearl, run_ahead
from outdraft.drafters.run_ahead import RunAheadOptions
from outdraft.drafters.shared.chains.grow import grow_chains
from outdraft.drafters.shared.chains.network import ChainNetwork
from outdraft.drafters.shared.limits import Cutoff, cutoffs_of
from outdraft.drafters.shared.trees.growth import grow_trees
from outdraft.drafters.shared.trees.shapes import Beam
from outdraft.drafters.shared.trees.tree import Tree
from outdraft.drafters.ssd import SsdDrafter, SsdOptions
from outdraft.options.errors import CacheFullError
from outdraft.sampling.draft_coins import draft_coins
from tests.helpers.enumerate_distribution import (
    BranchingCoins,
    BranchingDraftCoins,
    exact_distribution,
    outcomes,
    target_distribution,
    total_variation,
)
from tests.helpers.tables import blend, one_sequence, random_table

VOCAB, DEPTH = 4, 2
TARGET = random_table(VOCAB, 1, 1, spread=2.0)
DRAFT = blend(TARGET, random_table(VOCAB, 1, 2, spread=2.0), 0.7)
UNSURE = 0.2  # some tokens are less probable, some are not


@pytest.fixture(scope="module")
def rule():
    method = find("verifier", "auto")
    return method.build(method.options())


class Inner:
    """Chains of the table, by a network whose memory is full from step `full` on."""

    needs, traits = Needs(), Traits(rewinds=True)

    def __init__(self, full, *, feed_last=False, start=0):
        self.full, self.feed_last, self.start = full, feed_last, start
        self.fed = []

    def begin(self, seqs): ...
    def end(self, seqs): ...
    def observe(self, seen): ...

    def propose(self, seqs, budgets):
        (seq,) = seqs
        path = list(seq.tokens)

        def feed(step, rows, ids, num_open):
            if len(path) - self.start + (step > 0) > self.full:
                raise CacheFullError("full")
            if step:
                path.append(ids[0])
            self.fed.append(ids[0])
            return DRAFT(path).log()[None][:num_open]

        network = ChainNetwork(feed=feed, feed_last=self.feed_last)
        return grow_chains(seqs, [budget.depth for budget in budgets], network, cutoffs_of(budgets), sample="match")


def as_proposed(make):
    """A function of the text: what a drafter proposes with these coins, or the pending token where it has no room."""

    def propose(tokens, coins):
        seq = replace(one_sequence(list(tokens)), draft_coins=lambda s: coins)
        try:
            return make(seq)
        except CacheFullError:
            return chain([tokens[-1]])

    return propose


def a_chain(full, feed_last):
    def make(seq):
        inner = Inner(full, feed_last=feed_last, start=len(seq.tokens))
        return inner.propose([seq], [Budget(depth=DEPTH, confidence=UNSURE)])[0]

    return make


def ssd(full):
    def make(seq):
        inner = Inner(full, start=len(seq.tokens))
        drafter = SsdDrafter(SsdOptions(drafter="table", saguaro=0.5), inner)
        drafter.begin([seq])
        return drafter.propose([seq], [Budget(depth=DEPTH, confidence=UNSURE)])[0]

    return make


def a_tree(full):
    def make(seq):
        tree = Tree(seq, Beam(2, 2), max_depth=DEPTH, max_nodes=6, cutoff=Cutoff(token=0.3))
        fed = 0

        def feed(level, trees):
            nonlocal fed
            fed += len(tree.frontier)
            if fed > full:
                raise CacheFullError("full")
            return torch.stack([DRAFT([*seq.tokens, *tree.path(node)]).log() for node in tree.frontier])

        return grow_trees([tree], feed, sample="match")[0]

    return make


CASES = {
    "chain": lambda full: a_chain(full, False),
    "chain that feeds its last token": lambda full: a_chain(full, True),
    "ssd": ssd,
    "tree": a_tree,
}


@pytest.mark.parametrize("full", [0, 1, 2, 9])
@pytest.mark.parametrize("case", CASES)
def test_the_text_has_the_targets_distribution(rule, case, full):
    found = exact_distribution(rule, TARGET, as_proposed(CASES[case](full)), [0], DEPTH)
    assert total_variation(found, target_distribution(TARGET, [0], DEPTH)) < 1e-9


@pytest.mark.parametrize("full", [0, 1, 9])
def test_a_network_that_feeds_its_last_token_has_fed_every_token(full):
    """Its states of all of them are what the pass goes on from."""
    seq = replace(one_sequence([0, 0]), draft_coins=draft_coins)
    inner = Inner(full, feed_last=True, start=2)
    (draft,) = inner.propose([seq], [Budget(depth=DEPTH)])
    assert draft.tokens.tolist() == inner.fed and draft.num_nodes == 1 + min(full, DEPTH)


def test_dropping_what_was_drawn_would_be_found(rule):
    def dropping(seq):
        draft = a_chain(1, False)(seq)
        sure = draft.num_nodes > 1 and DRAFT(seq.tokens)[int(draft.tokens[1])] >= UNSURE
        return chain([seq.pending]) if sure else draft  # a sure token asked for room that was not there

    found = exact_distribution(rule, TARGET, as_proposed(dropping), [0], DEPTH)
    assert total_variation(found, target_distribution(TARGET, [0], DEPTH)) > 0.05


BESIDE = {"pearl": pearl.over, "run_ahead": lambda inner: run_ahead.over(RunAheadOptions(piece=1, window=2), inner)}


@pytest.mark.parametrize("full", [0, 1, 9])
@pytest.mark.parametrize("name", BESIDE)
def test_a_continuation_that_was_drawn_beside_the_pass_is_handed_on(rule, name, full):
    """The first token behind the block goes to the rule whether or not there was room for the next one."""

    def run(chance):
        seq = replace(one_sequence([0, 0]), draft_coins=lambda s: BranchingDraftCoins(chance))
        drafter = BESIDE[name](Inner(full, start=2))
        drafter.begin([seq])
        (draft,) = drafter.propose([seq], [Budget(depth=1, confidence=UNSURE)])
        meanwhile = RunAhead(drafter.traits.ahead, pack([seq], [draft]))
        meanwhile.work(lambda: False)
        (verdict,) = rule(meanwhile.continued(), TARGET([0])[None], [BranchingCoins(chance)])
        return verdict.token

    found = torch.zeros(VOCAB, dtype=torch.float64)
    for mass, token in outcomes(run):
        found[token] += mass
    assert torch.allclose(found, TARGET([0]), atol=1e-9)

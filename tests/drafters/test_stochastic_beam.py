"""Stochastic beams: the nodes are those of the paper, and under exact rules the text keeps the target's
distribution."""

from collections import Counter
from dataclasses import replace
from functools import cache, partial

import pytest
import torch
from verify.distributions import rule

from outdraft.core.draft import Draft, host_tree
from outdraft.drafters.shared.limits import MAX_NODES, Cutoff
from outdraft.drafters.shared.trees.growth import grow_trees
from outdraft.drafters.shared.trees.shapes import JointBeam
from outdraft.drafters.shared.trees.tree import Tree
from outdraft.testing.statistics import chi_square_tail, two_sample
from tests.helpers.enumerate_distribution import (
    BranchingDraftCoins,
    exact_distribution,
    outcomes,
    target_distribution,
    total_variation,
)
from tests.helpers.tables import one_sequence, random_table

CONTEXT = (0, 1)
DRAFTER = random_table(3, 2, 7, spread=2)
PAIRS = {
    "random": (random_table(3, 2, 1), random_table(3, 2, 2)),
    "peaked": (random_table(3, 2, 3, spread=4), random_table(3, 2, 4, spread=3)),
    "q has zeros": (random_table(3, 2, 5), random_table(3, 2, 6, top_k=2)),
    "p has zeros": (random_table(3, 2, 5, top_k=2), random_table(3, 2, 6)),
    "identical": (random_table(3, 2, 1), random_table(3, 2, 1)),
}


def grow(distribution, tokens, coins=None, *, size=2, depth=2, nodes=100, seed=0, threshold=0.0, temperature=1.0):
    seq = one_sequence(tokens, seed=seed, temperature=temperature)
    if coins is not None:
        seq = replace(seq, draft_coins=lambda _: coins)
    tree = Tree(seq, JointBeam(size), max_depth=depth, max_nodes=nodes, cutoff=Cutoff(threshold))

    def feed(level, trees):
        return torch.stack([distribution([*tokens, *tree.path(node)]).log() for node in tree.frontier])

    return grow_trees([tree], feed, sample="match")[0]


def levels(draft):
    """The paths of each level, in order of finish."""
    tree = host_tree(draft)
    found = [[] for _ in range(max(tree.depths))]
    for node in range(1, draft.num_nodes):
        found[tree.depths[node] - 1].append(tuple(tree.tokens[v] for v in tree.path(node)))
    return tuple(map(tuple, found))


def in_order_of(draft, rank):
    """The same tree with the children of every node sorted by `rank` of their numbers."""
    tree = host_tree(draft)
    order, above = [0], {0: -1}
    for node in order:
        for child in sorted(tree.children[node], key=rank):
            above[child] = order.index(node)
            order.append(child)
    return Draft(tokens=draft.tokens[order], parents=torch.tensor([above[node] for node in order]), q=draft.q[order])


def deviation(name, target, propose):
    distribution = exact_distribution(rule(name), target, propose, CONTEXT, 3)
    return total_variation(distribution, target_distribution(target, CONTEXT, 3))


@pytest.mark.parametrize("which", PAIRS)
@pytest.mark.parametrize("name", ["multi_draft", "traversal"])
def test_output_has_the_targets_distribution(name, which):
    target, drafter = PAIRS[which]
    assert deviation(name, target, partial(grow, drafter)) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("name", ["multi_draft", "traversal"])
@pytest.mark.parametrize("options", [{"size": 3}, {"depth": 3}, {"depth": 3, "nodes": 5}], ids=str)
def test_output_of_larger_beams_has_the_targets_distribution(name, options):
    assert deviation(name, PAIRS["random"][0], partial(grow, PAIRS["random"][1], **options)) < 1e-9


@pytest.mark.parametrize("name", ["multi_draft", "traversal"])
def test_full_trees_and_unsure_branches_keep_the_distribution(name):
    target, drafter = PAIRS["random"]
    assert deviation(name, target, partial(grow, drafter, nodes=3)) < 1e-9
    assert deviation(name, target, partial(grow, drafter, threshold=0.4)) < 1e-9


@pytest.mark.parametrize("rank", ["youngest first", "by token"])
def test_siblings_in_another_order_are_caught(rank):
    target, drafter = PAIRS["random"]

    def propose(tokens, coins):
        draft = grow(drafter, tokens, coins)
        return in_order_of(
            draft, {"youngest first": lambda node: -node, "by token": draft.tokens.tolist().__getitem__}[rank]
        )

    assert deviation("multi_draft", target, lambda tokens, coins: in_order_of(grow(drafter, tokens, coins), int)) < 1e-9
    assert deviation("multi_draft", target, propose) > 1e-3


def test_a_beam_that_looks_at_the_coming_token_is_caught():
    """Draw two children of every node, keep the level's most probable paths: what an ordinary beam search would do."""
    target, drafter = PAIRS["random"]

    def propose(tokens, coins):
        draft = grow(drafter, tokens, coins, size=2, depth=1)
        best = 1 + int(draft.q[0, draft.tokens[1:]].argmax())
        return Draft(tokens=draft.tokens[[0, best]], parents=draft.parents[:2], q=draft.q[:2])

    assert deviation("multi_draft", target, propose) > 1e-3


def first_prefixes(chance, distribution, size, depth):
    """Draw texts again and again, less those without news: the first `size` different beginnings of each length."""
    texts = {(): 1.0}
    for _ in range(depth):
        texts = {
            (*text, token): mass * float(distribution([*CONTEXT, *text])[token])
            for text, mass in texts.items()
            for token in range(3)
        }
    found = [[] for _ in range(depth)]

    def is_news(text):
        return any(len(level) < size and text[: i + 1] not in level for i, level in enumerate(found))

    while news := [text for text in texts if texts[text] > 0 and is_news(text)]:
        total = sum(texts[text] for text in news)
        text = news[chance.choose([texts[one] / total for one in news])]
        for i, level in enumerate(found):
            if len(level) < size and text[: i + 1] not in level:
                level.append(text[: i + 1])
    return tuple(map(tuple, found))


def tally(results):
    distribution = {}
    for mass, result in results:
        distribution[result] = distribution.get(result, 0.0) + mass
    return distribution


@pytest.mark.parametrize("size, depth", [(1, 2), (2, 2), (3, 2), (2, 3)])
def test_the_nodes_are_the_first_different_beginnings_of_random_texts(size, depth):
    """Without replacement is with replacement, repeats left out: an independent account of the beam, enumerated."""
    drafter = random_table(3, 2, 8, top_k=2) if depth == 3 else DRAFTER
    here = tally(
        outcomes(lambda chance: levels(grow(drafter, CONTEXT, BranchingDraftCoins(chance), size=size, depth=depth)))
    )
    there = tally(outcomes(lambda chance: first_prefixes(chance, drafter, size, depth)))
    assert sum(abs(here.get(key, 0) - there.get(key, 0)) for key in here | there) / 2 < 1e-9


@cache
def drawn():
    """Nodes under production's noise, of many seeds."""
    return [levels(grow(DRAFTER, CONTEXT, seed=seed)) for seed in range(1200)]


def test_keyed_coins_give_the_same_nodes():
    """Production's noise: the draw of a parent and the draw of its child know nothing of each other."""
    distribution = tally(outcomes(lambda chance: levels(grow(DRAFTER, CONTEXT, BranchingDraftCoins(chance)))))
    seen, count = Counter(drawn()), len(drawn())
    assert set(seen) <= set(distribution)
    common = [key for key in distribution if count * distribution[key] >= 10]
    chi_square = sum((seen[key] - count * distribution[key]) ** 2 / (count * distribution[key]) for key in common)
    assert chi_square_tail(chi_square, len(common) - 1) > 1e-3


def perturbed(dice, size, depth, *, conditioned=True):
    """Algorithm 1 of Kool et al.: perturbed log probabilities, given that the best child's is the parent's."""
    level, found = [((), 0.0, 0.0)], []
    for _ in range(depth):
        children = []
        for path, phi, top in level:
            phis = phi + DRAFTER([*CONTEXT, *path]).log()
            noise = phis - torch.empty(3, dtype=torch.float64).exponential_(generator=dice).log()
            if conditioned:
                noise = -torch.log(torch.exp(-noise) - torch.exp(-noise.max()) + torch.exp(torch.tensor(-top)))
            children += [((*path, i), float(phis[i]), float(noise[i])) for i in range(3)]
        level = sorted(children, key=lambda child: -child[2])[:size]
        found.append(tuple(child[0] for child in level))
    return tuple(found)


def test_the_nodes_are_those_of_perturbed_log_probabilities():
    here = drawn()
    dice = torch.Generator().manual_seed(1)
    there = [perturbed(dice, 2, 2) for _ in range(1000)]
    assert two_sample(here, there).p_value > 1e-3
    planted = [perturbed(dice, 2, 2, conditioned=False) for _ in range(1000)]
    assert two_sample(here, planted).p_value < 1e-6


def test_levels_have_so_many_nodes():
    flat = random_table(9, 1, 3)
    draft = grow(flat, (0,), size=4, depth=5)
    assert [len(level) for level in levels(draft)] == [4] * 5
    assert draft.num_nodes == 21 and len({*levels(draft)[4]}) == 4
    assert grow(flat, (0,), size=4, depth=5, nodes=6).num_nodes == 7
    few = grow(random_table(9, 1, 3, top_k=1), (0,), size=4, depth=3)  # there is but one path
    assert [len(level) for level in levels(few)] == [1, 1, 1]
    torch.testing.assert_close(draft.q[0], flat((0,)))


class Asked:
    """Coins that remember where they were asked."""

    def __init__(self):
        self.parents, self.tokens = [], []

    def draw(self, distribution, depth, ordinal, count=1):
        is_token = len(distribution) == 9
        (self.tokens if is_token else self.parents).append((depth, ordinal))
        return [int(distribution.argmax())]


def test_parents_are_drawn_by_coins_that_no_token_asks():
    """One pair of draws for each node; those of parents stand aside of every depth and ordinal of any tree."""
    coins = Asked()
    draft = grow(random_table(9, 1, 3), (0,), coins, size=3, depth=3)
    depths = host_tree(draft).depths
    assert coins.tokens == [(depths[node] - 1, node) for node in range(1, 10)]
    first, _ = coins.parents[0]
    assert coins.parents == [(first + i, first + i) for i in range(9)] and first > MAX_NODES


def test_a_path_too_rare_for_a_number_is_still_a_path():
    sure = torch.zeros(3, dtype=torch.float64)
    sure[0], sure[1] = 1e-300, 1.0
    found = levels(grow(lambda tokens: sure, (0,), size=2, depth=4))
    assert all(level[0] == (1,) * (i + 1) for i, level in enumerate(found))

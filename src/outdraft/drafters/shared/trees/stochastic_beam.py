"""A stochastic beam: the nodes of a level are so many paths of that length, drawn together without replacement.

Kool, van Hoof and Welling, "Stochastic beams and where to find them", 2019, https://arxiv.org/abs/1903.06059; as a
draft: Jeon et al., "Recursive speculative decoding" (RSD-S), 2024, https://arxiv.org/abs/2402.14160.

    paths race: each finishes after an exponential time of rate q(path), a node with the first path below it; the first
    W nodes of a level are the level. Below v1 v2 ... of the level above, in order of finish:

    rate    q(v) - what v's children have    the next one is a younger child of v, a node whose first child is here
            1 - q(nodes with a child)        the next one is the first child of the next v

This is the paper's beam by perturbed log probabilities (the time is e^-G) without its Gumbels: exponential times
forget, so who finishes next is one draw from the rates, which know the tokens that are here and never the one that
comes. Data in: a tree, the distributions of its frontier; data out: the next level, in order of finish.
"""

from math import exp, log

import torch
from torch import Tensor

from outdraft.core.coins import DraftCoins
from outdraft.drafters.shared.trees.tree import Tree

_ASIDE = 1 << 20  # depth and ordinal of the draws that choose parents: no text and no tree is so long


def draw_level(tree: Tree, distributions: Tensor, size: int, coins: DraftCoins) -> None:
    """`size` children of the frontier at most: fewer if the tree is full, or if there are no more paths.

    `distributions` [n, V]: of the frontier's nodes, which stand in order of finish.
    """
    left = distributions.clone()  # [n, V] less the tokens that are children already
    worths = [exp(tree.scores[node]) for node in tree.frontier]
    num_open = 0  # nodes of the frontier that have a child
    for _ in range(min(size, tree.max_nodes + 1 - len(tree.tokens))):
        rates = [worth * float(rest.sum()) for worth, rest in zip(worths, left[:num_open], strict=False)]
        if num_open < len(worths):
            rates.append(max(0.0, 1.0 - sum(worths[:num_open])))
        if not sum(rates) > 0:
            break
        new = len(tree.tokens)
        (place,) = coins.draw(torch.tensor(rates, dtype=torch.float64), _ASIDE + new, _ASIDE + new)
        num_open = max(num_open, place + 1)
        node = tree.frontier[place]
        (token,) = coins.draw(left[place], tree.depths[node], new)
        left[place, token] = 0
        tree.distributions[node] = distributions[place]
        prob = float(distributions[place, token])
        tree.add(node, token, log(prob), prob)

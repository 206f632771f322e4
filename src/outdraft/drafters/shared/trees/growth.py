r"""Tree growth: round by round, feed the nodes that the tree's shape wants expanded, and hang their children below.

    round 0  expand the pending node          p                 a beam of width 2: two children each,
    round 1  expand what the shape says      / \                the best 2 of a level are expanded
    ...                                     a   b
                                           / \ / \

Deterministic trees (top-k children) may be pruned freely: the best `max_nodes` by path score stay, and a parent never
scores less than its child. Sampled trees are never pruned, since dropping a drawn token for its value would bend the
distribution; they stop growing instead. Their children are drawn without replacement, or independently: then a token
may come twice; or a level is drawn as a whole (`stochastic_beam`). No tree feeds more than `MAX_NODES` nodes: the draft
model keeps no more rows. Where its memory is full below the pending node, the trees stay as they are: dropping them
would keep those whose drawn nodes asked for no more. Data in: `feed`; data out: one draft each.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import islice
from math import exp, log

import torch
from torch import Tensor

from outdraft.core.coins import DraftCoins
from outdraft.core.draft import Draft
from outdraft.drafters.shared.choose import Row, Sample, takes_argmax, top_rows
from outdraft.drafters.shared.limits import MAX_NODES
from outdraft.drafters.shared.trees.tree import Tree
from outdraft.options.errors import CacheFullError
from outdraft.sampling.warp import edit_nodes, warp_nodes

_AGAIN = 1 << 20  # between the ordinals of a node's draws with replacement; no tree has so many nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Alike:
    """What some nodes have in common: logits [m, V], and of each node which of these rows is its own."""

    rows: Tensor
    owners: Seq[int]


# level, trees: feed the `frontier` of each (none is empty) -> logits [n, V] of all these nodes, tree after tree
FeedTrees = Callable[[int, list[Tree]], Tensor | Alike]


def grow_trees(trees: Seq[Tree], feed: FeedTrees, *, sample: Sample, replacement: bool = False) -> list[Draft]:
    """Grow all trees together. `replacement`: sampled children are drawn independently of their siblings.

    Raises `CacheFullError` where there is no room for the pending nodes.
    """
    level = 0
    while live := [tree for tree in trees if tree.frontier]:
        try:
            found = feed(level, live)
        except CacheFullError:
            if not level:
                raise
            break
        said, logits = _said(live, found, sample)
        start = 0
        for tree, rows in zip(live, _top(live, said), strict=True):
            fed = tree.frontier
            first = len(tree.tokens)
            if takes_argmax(tree.seq, sample):
                for node, row in zip(fed, rows, strict=True):
                    _hang(tree, node, row)
            else:
                _draw(tree, logits[start : start + len(fed)], replacement)
            start += len(fed)
            tree.expanded += fed
            tree.frontier = _next(tree, range(first, len(tree.tokens)), sample)
        level += 1
    return [_finish(tree, sample) for tree in trees]


def _said(trees: Seq[Tree], found: Tensor | Alike, sample: Sample) -> tuple[Alike, Tensor]:
    """What nodes have in common, and the logits [n, V] of each, [0, V] where no tree asks for them."""
    if isinstance(found, Alike):
        if all(takes_argmax(tree.seq, sample) and not tree.seq.edits_logits for tree in trees):
            return found, found.rows[:0]
        found = found.rows[list(found.owners)]
    logits = _edited(trees, found, sample)
    return Alike(rows=logits, owners=range(len(logits))), logits


def _edited(trees: Seq[Tree], logits: Tensor, sample: Sample) -> Tensor:
    """Logits [n, V] of all frontiers; of deterministic trees with biases, masks and penalties, as the target has them.

    Drawn children are warped from the raw ones (`_draw`), which edits them too.
    """
    if not any(tree.seq.edits_logits for tree in trees):
        return logits
    start, parts = 0, []
    for tree in trees:
        own = logits[start : start + len(tree.frontier)]
        start += len(own)
        if tree.seq.edits_logits and takes_argmax(tree.seq, sample):
            own = edit_nodes(tree.seq, own, [tree.path(node) for node in tree.frontier], guesses=True)
        parts.append(own)
    return torch.cat(parts)


def _top(trees: Seq[Tree], said: Alike) -> list[list[Row]]:
    """The most probable tokens of every fed node, with log probability and probability."""
    widest = max(tree.shape.widest for tree in trees)
    trees_of = [i for i, tree in enumerate(trees) for _ in tree.frontier]
    owners = [0] * len(said.rows)
    for i, row in zip(trees_of, said.owners, strict=True):
        owners[row] = i
    rows = top_rows([tree.seq for tree in trees], owners, said.rows, widest)
    each = iter(said.owners)
    return [[rows[next(each)] for _ in tree.frontier] for tree in trees]


def _hang(tree: Tree, node: int, row: Row) -> None:
    """The best children of a node, as far as the shape wants them.

    They are scored among as many tokens as the shape's widest node has children, so that an only child is no surer than
    it is, and others in the batch change no score.
    """
    above = tree.scores[node] + tree.shape.decay
    tokens, log_probs, probs = row
    scores = _at(log_probs[: tree.shape.widest], tree.temperature)
    for token, log_prob, prob in islice(zip(tokens, scores, probs, strict=False), tree.shape.width(tree, node)):
        if prob <= 0 or above + log_prob < tree.shape.least:
            break
        tree.add(node, token, log_prob, prob)


def _at(log_probs: list[float], temperature: float) -> list[float]:
    """The best log probabilities, best first, at another temperature; what is not among them counts as nothing."""
    if temperature == 1 or not log_probs:
        return log_probs
    scaled = [(one - log_probs[0]) / temperature for one in log_probs]
    whole = log(sum(map(exp, scaled)))
    return [one - whole for one in scaled]


def _draw(tree: Tree, logits: Tensor, replacement: bool) -> None:
    """Children of the frontier, drawn from the warped distribution, in drawing order. How many is fixed before the
    draw."""
    seq, paths = tree.seq, [tree.path(node) for node in tree.frontier]
    coins = seq.draft_coins(seq)
    distributions = warp_nodes(seq, logits, paths, guesses=True)
    if tree.shape.together:
        draw_level(tree, distributions, tree.shape.together, coins)
        return
    for node, distribution in zip(tree.frontier, distributions, strict=True):
        count = min(tree.shape.width(tree, node), tree.max_nodes + 1 - len(tree.tokens))
        if count <= 0:
            continue
        tree.distributions[node] = distribution
        depth = tree.depths[node]
        if replacement and not seq.coupled:  # the target's own noise would draw the same token each time
            drawn = [coins.draw(distribution, depth, node + i * _AGAIN)[0] for i in range(count)]
        else:
            drawn = coins.draw(distribution, depth, node, count)
        for token in drawn:
            prob = distribution[token]
            tree.add(node, token, float(torch.log(prob)), float(prob))


def _next(tree: Tree, new: range, sample: Sample) -> list[int]:
    """Which nodes to expand next."""
    if not takes_argmax(tree.seq, sample) and len(tree.tokens) > tree.max_nodes:
        return []
    wanted = [node for node in tree.shape.expand(tree, new) if tree.depths[node] < tree.max_depth]
    return wanted[: MAX_NODES + 1 - len(tree.expanded)]  # the pending node's row is no guess


def _finish(tree: Tree, sample: Sample) -> Draft:
    """The grown tree as a datum; a deterministic one keeps its best `max_nodes` nodes."""
    n = len(tree.tokens)
    asked = tree.cutoff.is_asked
    if takes_argmax(tree.seq, sample):
        best = sorted(range(1, n), key=lambda node: (-tree.scores[node], node))[: tree.max_nodes]
        keep = [0, *sorted(best)]
        at = {node: i for i, node in enumerate(keep)}
        return Draft(
            tokens=torch.tensor([tree.tokens[node] for node in keep]),
            parents=torch.tensor([at.get(tree.parents[node], -1) for node in keep]),
            confidence=torch.tensor([tree.probs[node] for node in keep]) if asked else None,
        )
    q = None
    if tree.distributions:
        some = next(iter(tree.distributions.values()))
        q = some.new_zeros(n, some.shape[0])
        q[list(tree.distributions)] = torch.stack(list(tree.distributions.values()))
    return Draft(
        tokens=torch.tensor(tree.tokens),
        parents=torch.tensor(tree.parents),
        q=q,
        confidence=torch.tensor(tree.probs) if asked else None,
    )


_ASIDE = 1 << 20  # depth and ordinal of the draws that choose parents: no text and no tree is so long


def draw_level(tree: Tree, distributions: Tensor, size: int, coins: DraftCoins) -> None:
    """A stochastic beam: `size` children of the frontier at most, drawn together without replacement; fewer if the tree
    is full, or if there are no more paths. `distributions` [n, V]: of the frontier's nodes, which stand in order of
    finish.

        paths race: each finishes after an exponential time of rate q(path), a node with the first path below it; the
        first W nodes of a level are the level. Below v1 v2 ... of the level above, in order of finish:

        rate    q(v) - what v's children have    the next one is a younger child of v, whose first child is here
                1 - q(nodes with a child)        the next one is the first child of the next v

    Kool, van Hoof and Welling, "Stochastic beams and where to find them", 2019, https://arxiv.org/abs/1903.06059; as a
    draft: Jeon et al., "Recursive speculative decoding" (RSD-S), 2024, https://arxiv.org/abs/2402.14160. It is their
    beam by perturbed log probabilities (the time is e^-G) without its Gumbels: exponential times forget, so who
    finishes next is one draw from the rates, which know the tokens that are here and never the one that comes.
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

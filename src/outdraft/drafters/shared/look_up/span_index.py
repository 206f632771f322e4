"""Shared by all look-ups: an index lists possible continuations of a text, and one function makes a guess of them.

    text ... a b  ->  SpanIndex.lookup  ->  c d e  2, c f  1  ->  Trie  ->  Draft
                      one for each paper    with counts           the same for all

    paths  a b c  3     trie     p             tokens  [p, a, b, c, d]
           a b d  1              a 4           parents [-1, 0, 1, 2, 2]
                                 b 4           a node's score is the sum of the counts of the paths through it
                              c 3   d 1

So a look-up method is an index and a ranking. Scores never grow along a path, so the heaviest nodes are a tree: nothing
is kept without its parent. Data in: a sequence, its budget and an index; data out: a deterministic tree.
"""

from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import torch

from outdraft.core.draft import Draft, chain
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.limits import usable_depth, usable_nodes


class Trie:
    """Node 0 is the root; nodes are numbered as they came."""

    __slots__ = ("_children", "parents", "scores", "tokens")

    def __init__(self, root: int) -> None:
        self.tokens = [root]
        self.parents = [-1]
        self.scores = [0.0]  # the root's is not used
        self._children: dict[tuple[int, int], int] = {}

    def insert(self, path: Iterable[int], count: float = 1.0) -> bool:
        """Add a path from the root, seen `count` >= 0 times; whether that made a new node."""
        before, node = len(self.tokens), 0
        for token in path:
            node = self.grow(node, token, count)
        return len(self.tokens) > before

    def grow(self, node: int, token: int, score: float) -> int:
        """The child `token` of `node`, made if need be, `score` heavier; never let it outweigh `node` itself."""
        child = self._children.get((node, token))
        if child is None:
            child = self._children[node, token] = len(self.tokens)
            self.tokens.append(token)
            self.parents.append(node)
            self.scores.append(score)
        else:
            self.scores[child] += score
        return child

    def heaviest(self, max_nodes: int) -> tuple[list[int], list[int]]:
        """Tokens and parents of the root and the `max_nodes` heaviest others, older ones first where scores tie."""
        if len(self.tokens) <= max_nodes + 1:
            return self.tokens, self.parents
        ranked = sorted(range(1, len(self.tokens)), key=lambda node: -self.scores[node])
        keep = [0, *sorted(ranked[:max_nodes])]
        places = {node: place for place, node in enumerate(keep)}
        return [self.tokens[node] for node in keep], [places.get(self.parents[node], -1) for node in keep]

    def draft(self, max_nodes: int) -> Draft:
        """A deterministic guess of at most `max_nodes` nodes below the root: no distribution is needed."""
        tokens, parents = self.heaviest(max_nodes)
        return Draft(tokens=torch.tensor(tokens), parents=torch.tensor(parents))


BORDER = -1  # between two texts in one: no context has it, no continuation crosses it
_MAX_LOOKS = 8  # continuations examined for each branch wanted: bounds the cost of very common spans


@dataclass(frozen=True, slots=True)
class Sequel:
    """Tokens that followed a text elsewhere."""

    tokens: Seq[int]
    count: float = 1.0  # how often, or another weight >= 0


class SpanIndex(Protocol):
    """Remembers texts; asked what came after the end of another."""

    def lookup(self, context: Seq[int], depth: int) -> Iterable[Sequel]:
        """At most `depth` tokens each, best first, repeats allowed; nothing where nothing is known.

        `context` is the whole text so far, the pending token at its end. The caller may stop reading early.
        """


def copy_on(text: Seq[int], start: int, depth: int, *, wrap: bool = False) -> list[int]:
    """At most `depth` tokens of `text` from `start` on, to the next border.

    `wrap`: a copy that reaches the end of the text goes on with itself (a text in a loop).
    """
    copied = list(text[start : start + depth])
    if BORDER in copied:
        return copied[: copied.index(BORDER)]
    if wrap and copied:
        period = len(copied)
        copied += [copied[i % period] for i in range(period, depth)]
    return copied


def paths(tokens: Seq[int], parents: Seq[int], counts: Seq[float]) -> Iterator[Sequel]:
    """A trie as a path to each node, in its order: its count less its children's is what ended there, maybe 0.

    Parents come before children; -1: the root, which is none of the nodes.
    """
    ended = list(counts)
    for parent, count in zip(parents, counts, strict=True):
        if parent >= 0:
            ended[parent] -= count
    known: list[list[int]] = []
    for token, parent, count in zip(tokens, parents, ended, strict=True):
        known.append([*known[parent], token] if parent >= 0 else [token])
        yield Sequel(known[-1], max(0.0, count))


def look_up(
    index: SpanIndex, seq: Sequence, budget: Budget, *, max_nodes: int, max_branches: int | None = None
) -> Draft:
    """The guess that `index` makes for `seq`: its continuations merged, the heaviest nodes kept.

    At most `max_nodes` nodes below the pending token, fewer if the budget or the context says so; of the first
    `max_branches` continuations that differ (None: of all; 1: a chain).
    """
    depth = usable_depth(seq, budget)
    found: Iterable[Sequel] = index.lookup(seq.tokens, depth) if depth else ()
    if max_branches is not None:
        found = islice(found, max_branches * _MAX_LOOKS)
    if max_branches == 1:
        return chain([*seq.tokens[-1:], *_first(found)[:max_nodes]])
    trie, branches, nodes = Trie(seq.pending), 0, usable_nodes(seq, budget, max_nodes)
    for one in found:
        branches += trie.insert(one.tokens, one.count)
        if branches == max_branches:
            break
    return trie.draft(nodes)


def _first(found: Iterable[Sequel]) -> Seq[int]:
    """The tokens of the first that has any."""
    for one in found:
        if one.tokens:
            return one.tokens
    return ()

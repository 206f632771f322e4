r"""The one data type for guesses: every method's guess is a `Draft`, a small tree of tokens below the pending token.

        0  pending (emitted, not in the cache yet)
       / \
      1   4        tokens  [N]    node 0 = the pending token itself
     /|            parents [N]    parents[0] = -1; a parent precedes its children; siblings stand in drawing order
    2 3            q       [N,V]  row i = the distribution from which node i's children were really drawn
                                  (absent: a deterministic guess, whose distribution is one-hot)

Siblings are drawn without replacement from their parent's row. Where some were drawn independently of the others (with
replacement, or by another drafter), `drawn_from` names each node's own row: the eldest child's is its parent's, the
others may be among further rows of q, below the N.

A drafter that works while the pass runs may have drafted on: the token behind the last node is the `continuation`. It
has no row in the pass. A chain is a tree of width one; plain decoding is the tree of node 0 alone.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

import torch
from torch import Tensor

from outdraft.options.errors import CapabilityError


class Role(IntEnum):
    """What a node of a draft is for."""

    VERIFY = 0  # a guess that may be accepted
    PROBE = 1  # computed in the same pass, never acceptable, never kept (lookahead windows, mask slots)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Hidden states to restart from: the drafter has already run these nodes through the first layers."""

    layer: int  # layers [0, layer) are done; their K/V stand in the target's cache as tentative rows
    hidden: Tensor  # [N, D]


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """A token that was drafted behind the last node of a draft, but is not scored in its pass.

    It may become known while the pass runs. A rule that accepts the whole path to the last node draws the bonus token
    so that it is this one as often as the target's distribution allows; then what was drafted behind it still stands.
    """

    token: int
    q: Tensor | None = None  # [V] the distribution that it was really drawn from; None: a deterministic guess


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """One sequence's guess. Node i sits at the pending token's position plus its depth.

    `confidence`: the drafter's estimate of the chance that a node is right, given that all its ancestors are: its own
    probability of the token, or what a head of its network says of the place. So the chance of a path is the product
    along it. The pending token's is 1. Policies and rules read it; no token is drawn from it.
    """

    tokens: Tensor  # [N] int64
    parents: Tensor  # [N] int64
    q: Tensor | None = None  # [N, V]; rows of leaves are not read. [R, V], R >= N, with `drawn_from`
    drawn_from: Tensor | None = None  # [N] row of q of each node: one row without replacement, two independently
    roles: Tensor | None = None  # [N] Role; default VERIFY
    mask: Tensor | None = None  # [N, N] bool, what each node sees of the others; default its ancestors and itself
    embeds: Tensor | None = None  # [N, D] learned vectors in place of token embeddings; NaN rows: use the token
    resume: Resume | None = None
    confidence: Tensor | None = None  # [N] of each node, if its ancestors are right
    continuation: Continuation | None = None  # what was drafted behind the last node

    @property
    def num_nodes(self) -> int:
        """N, the pending node included."""
        return self.tokens.shape[0]


class HostTree:
    """The same tree as plain Python numbers: what a rule walks over.

    Fields:
        tokens, parents, depths: of each node.
        children: acceptable children of each node, in drawing order.
    """

    __slots__ = ("_source", "children", "depths", "is_read", "parents", "tokens")

    def __init__(self, source: Tensor, *, parents: list[int], children: list[list[int]], depths: list[int]) -> None:
        self.parents, self.children, self.depths = parents, children, depths
        self.is_read = source.device.type == "cpu"  # the tokens are on the host
        self._source = source
        if self.is_read:
            self.tokens: list[int] = source.tolist()

    def __getattr__(self, name: str) -> list[int]:
        """`tokens` that were drafted on a GPU, unless they were taken with what else is read."""
        if name != "tokens":
            raise AttributeError(name)
        self.take(self._source.tolist())
        return self.tokens

    def take(self, tokens: list[int]) -> None:
        """The tokens, which the caller has read."""
        self.tokens, self.is_read = tokens, True

    @property
    def is_chain(self) -> bool:
        """Whether no node has two acceptable children."""
        return all(len(c) <= 1 for c in self.children)

    def child(self, node: int, token: int) -> int | None:
        """The acceptable child of `node` that guesses this token."""
        for child in self.children[node]:
            if self.tokens[child] == token:
                return child
        return None

    def count_right(self, tokens: Seq[int]) -> int:
        """How many of these tokens, which came after the pending one, a path from the root foretells."""
        node = 0
        for depth, token in enumerate(tokens):
            if (right := self.child(node, token)) is None:
                return depth
            node = right
        return len(tokens)

    def walk(self, best: Seq[int]) -> list[int]:
        """Nodes from below the root on, each of which guesses what is best [N] at its parent."""
        path, node = list[int](), 0
        while True:
            for child in self.children[node]:
                if self.tokens[child] == best[node]:
                    path.append(child)
                    node = child
                    break
            else:
                return path

    def path(self, node: int) -> list[int]:
        """Node indices from below the root to `node`."""
        path: list[int] = []
        while node > 0:
            path.append(node)
            node = self.parents[node]
        return path[::-1]


def host_tree(draft: Draft) -> HostTree:
    """Read a draft's structure on the host, where `parents` and `roles` should be; its tokens may be on a GPU."""
    parents: list[int] = draft.parents.tolist()
    n = len(parents)
    if n == 1:
        return HostTree(draft.tokens, parents=parents, children=[[]], depths=[0])
    roles = draft.roles.tolist() if draft.roles is not None else [Role.VERIFY] * n
    children: list[list[int]] = [[] for _ in parents]
    depths = [0] * n
    for node in range(1, n):
        parent = parents[node]
        if not 0 <= parent < node:
            raise CapabilityError(f"draft node {node} has parent {parent}: a parent must precede its children")
        depths[node] = depths[parent] + 1
        if roles[node] == Role.VERIFY:
            children[parent].append(node)
    return HostTree(draft.tokens, parents=parents, children=children, depths=depths)


def chain(tokens: list[int] | Tensor, q: Tensor | None = None, **fields: Tensor | Resume | None) -> Draft:
    """A chain whose first token is the pending one. `q` [N, V] or, one row short, [N-1, V]."""
    ids = tokens if isinstance(tokens, Tensor) else torch.tensor(tokens, dtype=torch.long)
    if q is not None and q.shape[0] == ids.shape[0] - 1:
        q = torch.cat([q, q.new_zeros(1, q.shape[1])])  # the last node's row is never read
    return Draft(tokens=ids, parents=_chain_parents(ids.shape[0]), q=q, **fields)  # type: ignore[arg-type]


@lru_cache(maxsize=256)
def _chain_parents(length: int) -> Tensor:
    """[length]: every round of every sequence has a chain, and none of them changes its parents."""
    with torch.inference_mode(False):  # training may read them, too
        return torch.arange(-1, length - 1)

r"""Trees of several drafters under one root.

    p - a - b                      p             deterministic guesses share equal beginnings
               are joined to       |
    p - a - c                      a             sampled ones stand side by side, in the drafters' order: a token that
                                  / \            came twice is two proposals, each with its own distribution
                                 b   c           (`Draft.drawn_from`)

Miao et al., "SpecInfer", 2023, https://arxiv.org/abs/2305.09781. Data in: drafts of one sequence; data out: one draft,
and where each drafter's nodes stand in it.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from outdraft.core.draft import Draft, HostTree


@dataclass(frozen=True, slots=True)
class Joined:
    """One tree made of the guesses of several drafters."""

    draft: Draft
    places: list[list[int]]  # drafter, node of its own draft -> node of the joined one


def join(drafts: Seq[Draft], trees: Seq[HostTree], *, as_certain: bool) -> Joined:
    """`as_certain`: distributions do not matter (no guess has one, or the rule does not read it)."""
    joined = _shared(drafts, trees) if as_certain else _side_by_side(drafts, trees)
    return replace(joined, draft=replace(joined.draft, confidence=_confidence(drafts, joined)))


def _confidence(drafts: Seq[Draft], joined: Joined) -> Tensor | None:
    """[N] of each node, a shared one's by the first drafter that guessed it. None unless all that guessed say it."""
    sure = torch.ones(joined.draft.num_nodes)
    guesses = [(draft, place) for draft, place in zip(drafts, joined.places, strict=True) if draft.num_nodes > 1]
    for draft, place in reversed(guesses):
        if draft.confidence is None:
            return None
        sure[place] = draft.confidence.to(sure)
    return sure if guesses else None


def _shared(drafts: Seq[Draft], trees: Seq[HostTree]) -> Joined:
    tokens, parents, places = [trees[0].tokens[0]], [-1], []
    children: dict[tuple[int, int], int] = {}
    for tree in trees:
        place = [0]
        for node in range(1, len(tree.parents)):
            above, token = place[tree.parents[node]], tree.tokens[node]
            if (above, token) not in children:
                children[above, token] = len(tokens)
                tokens.append(token)
                parents.append(above)
            place.append(children[above, token])
        places.append(place)
    return Joined(Draft(tokens=torch.tensor(tokens), parents=torch.tensor(parents)), places)


def _side_by_side(drafts: Seq[Draft], trees: Seq[HostTree]) -> Joined:
    vocab, like = next((draft.q.shape[1], draft.q) for draft in drafts if draft.q is not None)
    tokens, parents, places = [trees[0].tokens[0]], [-1], []
    for tree in trees:
        place = [0]
        for node in range(1, len(tree.parents)):
            place.append(len(tokens))
            tokens.append(tree.tokens[node])
            parents.append(place[tree.parents[node]])
        places.append(place)
    rows: list[Tensor | None] = [None] * len(tokens)  # of q: of each node's eldest child, then of further ones
    drawn_from = [-1] * len(tokens)
    for draft, tree, place in zip(drafts, trees, places, strict=True):
        row_of: dict[tuple[int, int], int] = {}  # node, row of the draft's own q -> row
        for node in range(1, len(tree.parents)):
            above = place[tree.parents[node]]
            if draft.q is None:
                own, distribution = node, torch.nn.functional.one_hot(torch.tensor(tree.tokens[node]), vocab).to(like)
            else:
                own = tree.parents[node] if draft.drawn_from is None else int(draft.drawn_from[node])
                distribution = draft.q[own].to(like)
            if (above, own) not in row_of:
                if rows[above] is None:
                    rows[above], row_of[above, own] = distribution, above
                else:
                    row_of[above, own] = len(rows)
                    rows.append(distribution)
            drawn_from[place[node]] = row_of[above, own]
    q = torch.stack([like.new_zeros(vocab) if row is None else row for row in rows])
    joined = Draft(tokens=torch.tensor(tokens), parents=torch.tensor(parents), q=q, drawn_from=torch.tensor(drawn_from))
    return Joined(joined, places)

r"""Several drafters, one tree: each guesses by itself and observes the verdict on its own guess.

Miao et al., "SpecInfer: accelerating large language model serving with tree-based speculative inference and
verification", 2023, https://arxiv.org/abs/2305.09781.

    draft_model -> a b, a c  \                 / draft_model: "your a c was accepted"
                              one tree, judged
    ngram       -> a c d     /                 \ ngram: "your a c was accepted, d was not"

Deterministic guesses share equal beginnings. Sampled ones stand side by side, in the drafters' order: a token that came
twice is two proposals, each with its own distribution (`Draft.drawn_from`). Data in: sequences; data out: one tree
each. Each drafter draws with coins of its own.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor

from outdraft.core.draft import Draft, HostTree, host_tree
from outdraft.core.drafter import Drafter, Seen, Traits
from outdraft.core.method import DrafterMethod, arxiv
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.core.verdict import Verdict
from outdraft.decode.fit import first_nodes
from outdraft.drafters.shared.composed.nested import build_nested, in_lane, joined_needs
from outdraft.drafters.shared.limits import MAX_NODES, usable_depth, usable_nodes
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import CapabilityError, ConfigError


@dataclass(frozen=True, slots=True)
class Joined:
    """One tree made of the guesses of several drafters."""

    draft: Draft
    places: list[list[int]]  # drafter, node of its own draft -> node of the joined one


def join(drafts: Seq[Draft], trees: Seq[HostTree], *, as_certain: bool) -> Joined:
    """One tree of all drafts, in their order. `as_certain`: distributions do not matter (no guess has one, or the rule
    does not read it), so drafts share what they begin alike; else their nodes stand side by side."""
    tokens, parents, places = [trees[0].tokens[0]], [-1], list[list[int]]()
    children: dict[tuple[int, int], int] = {}
    for tree in trees:
        place = [0]
        for node in range(1, len(tree.parents)):
            above, token = place[tree.parents[node]], tree.tokens[node]
            if not as_certain or (above, token) not in children:
                children[above, token] = len(tokens)
                tokens.append(token)
                parents.append(above)
            place.append(children[above, token])
        places.append(place)
    q, drawn_from = (None, None) if as_certain else _distributions(drafts, trees, places, len(tokens))
    joined = Draft(
        tokens=torch.tensor(tokens),
        parents=torch.tensor(parents),
        q=q,
        drawn_from=drawn_from,
        confidence=_confidence(drafts, places, len(tokens)),
    )
    return Joined(joined, places)


def _confidence(drafts: Seq[Draft], places: Seq[list[int]], num_nodes: int) -> Tensor | None:
    """[N] of each node, a shared one's by the first drafter that guessed it. None unless all that guessed say it."""
    sure = torch.ones(num_nodes)
    guesses = [(draft, place) for draft, place in zip(drafts, places, strict=True) if draft.num_nodes > 1]
    for draft, place in reversed(guesses):
        if draft.confidence is None:
            return None
        sure[place] = draft.confidence.to(sure)
    return sure if guesses else None


def _distributions(
    drafts: Seq[Draft], trees: Seq[HostTree], places: Seq[list[int]], num_nodes: int
) -> tuple[Tensor, Tensor]:
    """Rows of q [R, V], and of which of them each node was drawn [N]; nodes of several drafters have a row each."""
    vocab, like = next((draft.q.shape[1], draft.q) for draft in drafts if draft.q is not None)
    rows: list[Tensor | None] = [None] * num_nodes  # of each node's eldest child, then of further ones
    drawn_from = [-1] * num_nodes
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
    return torch.stack([like.new_zeros(vocab) if row is None else row for row in rows]), torch.tensor(drawn_from)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeOptions:
    """Which drafters, the most trusted first. Raises `ConfigError` if there are none."""

    # the drafters, the most trusted first: names, or {"method": NAME, OPTION: VALUE}
    drafters: tuple[str | Mapping[str, Any], ...] = ("draft_model", "ngram")

    def __post_init__(self) -> None:
        object.__setattr__(self, "drafters", tuple(self.drafters))
        if not self.drafters:
            raise ConfigError("drafters=(): name at least one, for example ['draft_model', 'ngram']")


class MergeDrafter:
    """The inner drafters' four verbs, in order."""

    def __init__(self, drafters: Seq[Drafter], names: Seq[str]) -> None:
        self.drafters = list(drafters)
        self.names = list(names)
        self.needs, self.traits = joined_needs(drafters, names), Traits(inner=tuple(drafters))
        self._guesses: dict[int, tuple[list[Draft], Joined]] = {}  # sequence -> what is being judged

    def begin(self, seqs: Seq[Sequence]) -> None:
        for drafter in self.drafters:
            drafter.begin(seqs)

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """The guesses of all drafters; the first may use its share of the nodes, what it leaves goes to the next."""
        left = [usable_nodes(seq, budget, MAX_NODES) for seq, budget in zip(seqs, budgets, strict=True)]
        depths = [usable_depth(seq, budget) for seq, budget in zip(seqs, budgets, strict=True)]
        own: list[list[Draft]] = [[] for _ in seqs]
        for lane, drafter in enumerate(self.drafters):
            shares = [-(-nodes // (len(self.drafters) - lane)) for nodes in left]
            asked = [
                replace(budget, depth=min(depth, share), nodes=share)
                for budget, depth, share in zip(budgets, depths, shares, strict=True)
            ]
            found = drafter.propose([in_lane(seq, lane) for seq in seqs], asked)
            for i, draft in enumerate(found):
                own[i].append(draft)
                left[i] -= draft.num_nodes - 1
        return [self._join(seq, drafts) for seq, drafts in zip(seqs, own, strict=True)]

    def observe(self, seen: Seq[Seen]) -> None:
        """Show each what became of its own guess."""
        for lane, drafter in enumerate(self.drafters):
            drafter.observe([self._share(one, lane) for one in seen])
        for one in seen:
            if one.verdict is not None:
                self._guesses.pop(one.seq.id, None)  # what is judged next may be another drafter's

    def end(self, seqs: Seq[Sequence]) -> None:
        for drafter in self.drafters:
            drafter.end(seqs)
        for seq in seqs:
            self._guesses.pop(seq.id, None)

    def _join(self, seq: Sequence, drafts: list[Draft]) -> Draft:
        for name, draft in zip(self.names, drafts, strict=True):
            if any(getattr(draft, more) is not None for more in ("roles", "mask", "embeds", "resume")):
                raise CapabilityError(
                    f"drafter {name!r} brings more with its guess than tokens: its traits lack merges=False"
                )
        as_certain = seq.coupled or all(draft.q is None for draft in drafts)
        joined = join(drafts, [host_tree(draft) for draft in drafts], as_certain=as_certain)
        self._guesses[seq.id] = drafts, joined
        return joined.draft

    def _share(self, one: Seen, lane: int) -> Seen:
        """The pass as it looks to one drafter: its own nodes, and the part of the path that it guessed.

        Where memory had room for the first nodes of the joined tree only, so it is with the drafter's own.
        """
        if one.draft is None or one.draft.num_nodes == 1 or one.verdict is None or one.seq.id not in self._guesses:
            return one  # a prompt chunk, a guess of no drafter, or of another
        drafts, joined = self._guesses[one.seq.id]
        num_nodes = one.draft.num_nodes
        place = list(takewhile(lambda at: at < num_nodes, joined.places[lane]))
        draft = first_nodes(drafts[lane], len(place))
        node_at = {at: node for node, at in enumerate(place)}
        path: list[int] = []
        for at in one.verdict.path:
            if at not in node_at:
                break
            path.append(node_at[at])
        rest = one.verdict.path[len(path) :]
        token = int(one.draft.tokens[rest[0]]) if rest else one.verdict.token
        parents = set(draft.parents.tolist())
        return replace(
            one,
            draft=draft,
            logits=None if one.logits is None else one.logits[torch.tensor(place, device=one.logits.device)],
            verdict=Verdict(tuple(path), token, bonus=(path[-1] if path else 0) not in parents),
        )


def build(options: MergeOptions, port: TargetPort) -> MergeDrafter:
    """Build the inner drafters. Raises `CapabilityError` for one whose guesses cannot stand beside others."""
    made = [build_nested(described, port) for described in options.drafters]
    for drafter, method in made:
        if not _merges(drafter):
            raise CapabilityError(
                f"drafter {method.name!r} brings more with its guess than tokens (probes, vectors or states of the "
                "target's first layers), so it cannot be merged: leave it out of 'drafters'"
            )
    return MergeDrafter([drafter for drafter, _ in made], [method.name for _, method in made])


def _merges(drafter: Drafter) -> bool:
    return drafter.traits.merges and not drafter.needs.resume_layer and all(map(_merges, drafter.traits.inner))


METHOD = DrafterMethod(
    name="merge",
    summary="several drafters guess, and one tree of all their guesses is judged",
    build=build,
    options=MergeOptions,
    paper=arxiv(
        "2305.09781",
        "SpecInfer: accelerating large language model serving with tree-based speculative inference and verification",
    ),
    describe=lambda drafter: {"merged": tuple(drafter.names)},
    shape_of=lambda options: "tree",
)

"""Several drafters, one tree: each guesses by itself and observes the verdict on its own guess.

Miao et al., "SpecInfer", 2023, https://arxiv.org/abs/2305.09781.

    draft_model -> a b, a c  \\                 / draft_model: "your a c was accepted"
                              one tree, judged
    ngram       -> a c d     /                 \\ ngram: "your a c was accepted, d was not"

Data in: sequences; data out: one tree each. Each drafter draws with coins of its own.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import torch

from outdraft.core.draft import Draft, first_nodes, host_tree
from outdraft.core.drafter import Drafter, Seen, Traits
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.core.verdict import Verdict
from outdraft.drafters.merge.join import Joined, join
from outdraft.drafters.shared.composed.lanes import in_lane
from outdraft.drafters.shared.composed.nested import build_nested, joined_needs
from outdraft.drafters.shared.limits import MAX_NODES, usable_depth, usable_nodes
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import CapabilityError, ConfigError


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
        self.needs = joined_needs(drafters, names)
        self._guesses: dict[int, tuple[list[Draft], Joined]] = {}  # sequence -> what is being judged

    @property
    def traits(self) -> Traits:
        """It asks each of the drafters that it merges."""
        return Traits(inner=tuple(self.drafters))

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
                self._check(draft, lane)
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

    def _check(self, draft: Draft, lane: int) -> None:
        for name in ("roles", "mask", "embeds", "resume"):
            if getattr(draft, name) is not None:
                raise CapabilityError(
                    f"drafter {self.names[lane]!r} brings {name!r} with its guess, which cannot be merged with others: "
                    "merge drafters of plain chains and trees"
                )

    def _join(self, seq: Sequence, drafts: list[Draft]) -> Draft:
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
    """Build the inner drafters."""
    made = [build_nested(described, port) for described in options.drafters]
    return MergeDrafter([drafter for drafter, _ in made], [method.name for _, method in made])


def describe(drafter: MergeDrafter) -> Mapping[str, Any]:
    """Whose guesses are merged."""
    return {"merged": tuple(drafter.names)}

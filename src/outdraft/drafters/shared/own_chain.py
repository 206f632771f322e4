"""Chains that the target writes for itself, by some of its sublayers, other weights or fewer keys.

    text: exact rows of full passes | pending -> t1 -> t2 ...    the guess's rows stand tentatively behind the text;
                                                                 the verifying pass writes over them

No keys are copied for the guess and none are kept of it: the text's rows always come from full passes. Data in:
sequences, depths, the network, where rows stand, and what each sequence skips; data out: one chain each.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from outdraft.core.draft import Draft
from outdraft.core.policy import Budget
from outdraft.core.ranges import check_range
from outdraft.core.sequence import Sequence
from outdraft.core.skip import NO_SKIP, Skip
from outdraft.drafters.shared.choose import Sample, check_sample
from outdraft.drafters.shared.draft_network import DraftNetwork
from outdraft.drafters.shared.limits import usable_depth
from outdraft.drafters.shared.native_chains import Floors, grow_chains_natively
from outdraft.kernels.guesser import Chains, Draw
from outdraft.nn.context import AttentionContext


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnChainOptions:
    """How tokens are chosen and when a chain ends. Raises `ConfigError` naming what is out of range."""

    sample: Sample = "match"  # draw as the request does, or always the argmax ("greedy")
    confidence_threshold: float = 0.0  # a token less probable than this is kept and ends the chain; 0: never

    def __post_init__(self) -> None:
        check_sample(self.sample)
        check_range(self, "confidence_threshold", least=0, most=1)


Watch = Callable[[list[int], Tensor], None]  # indices of sequences, their logits [n, V] of one step


class Place(Protocol):
    """Where the rows of a guess stand: `TargetPort.tentative`, or a view."""

    def __call__(self, seqs: Seq[Sequence], offset: int, rooms: Seq[int], /) -> AttentionContext:
        """One row of each sequence, `offset` places after the pending one, with room for `rooms[i]` from it on."""
        ...


def grow_own_chains(
    seqs: Seq[Sequence],
    budgets: Seq[Budget],
    network: DraftNetwork,
    place: Place,
    options: OwnChainOptions,
    skips: Seq[Skip] | None = None,
    watch: Watch | None = None,
) -> list[Draft]:
    """A chain for each sequence. `skips[i]`: what it leaves out; those that leave out the same share their passes.

    `watch` is shown the logits that the tokens were chosen from; then the chains are stepped.
    """
    depths = [usable_depth(seq, budget) for seq, budget in zip(seqs, budgets, strict=True)]
    skips = [NO_SKIP] * len(seqs) if skips is None else skips

    def feed(step: int, rows: list[int], tokens: list[int], num_open: int) -> Tensor:
        parts: list[tuple[list[int], Tensor]] = []
        for skip, members in _groups([skips[i] for i in rows[:num_open]]):
            own = [seqs[rows[j]] for j in members]
            context = place(own, step, [1] * len(own))
            places = [len(seq.tokens) - 1 + step for seq in own]
            logits = network.logits([tokens[j] for j in members], places, context, range(len(own)), skip)
            parts.append((members, logits))
        logits = _joined(parts)
        if watch is not None:
            watch(rows[:num_open], logits)
        return logits

    def run(rows: list[int], own_depths: list[int], draws: list[Draw | None], least: Floors) -> Chains:
        tokens: list[list[int]] = [[] for _ in rows]
        laws: list[Tensor | None] = [None for _ in rows]
        surenesses: list[list[float]] = [[] for _ in rows]
        for skip, members in _groups([skips[i] for i in rows]):
            own, depths = [seqs[rows[j]] for j in members], [own_depths[j] for j in members]
            found = network.chain(
                [seq.pending for seq in own],
                [len(seq.tokens) - 1 for seq in own],
                place(own, 0, depths),
                depths,
                [draws[j] for j in members],
                skip,
                None if least is None else [least[j] for j in members],
            )
            for j, path, law in zip(members, found.tokens, found.laws, strict=True):
                tokens[j], laws[j] = path, law
            for j, sure in zip(members, found.surenesses or (), strict=least is not None):
                surenesses[j] = sure
        return Chains(tokens=tokens, laws=laws, states=None, surenesses=None if least is None else surenesses)

    return grow_chains_natively(
        seqs,
        depths,
        run if network.runs_chains and watch is None else None,
        feed,
        sample=options.sample,
        confidence_threshold=options.confidence_threshold,
        budgets=budgets,
    )


def _groups(skips: Seq[Skip]) -> list[tuple[Skip, list[int]]]:
    """Which of them are equal, in the order in which they first come."""
    found: dict[Skip, list[int]] = {}
    for i, skip in enumerate(skips):
        found.setdefault(skip, []).append(i)
    return list(found.items())


def _joined(parts: list[tuple[list[int], Tensor]]) -> Tensor:
    """Rows [n, V] in their own order."""
    if len(parts) == 1:
        return parts[0][1]
    logits = torch.cat([rows for _, rows in parts])
    order = torch.tensor([j for members, _ in parts for j in members], device=logits.device)
    return torch.empty_like(logits).index_copy_(0, order, logits)

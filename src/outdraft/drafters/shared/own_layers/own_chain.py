"""Chains that the target writes for itself, by some of its sublayers, other weights or fewer keys.

    text: exact rows of full passes | pending -> t1 -> t2 ...    the guess's rows stand tentatively behind the text;
                                                                 the verifying pass writes over them

No keys are copied for the guess and none are kept of it: the text's rows always come from full passes. Data in:
sequences, depths, the network, where rows stand, and what each sequence skips; data out: one chain each.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from outdraft.core.draft import Draft
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.core.skip import NO_SKIP, Skip
from outdraft.drafters.shared.chains.grow import grow_chains
from outdraft.drafters.shared.chains.network import ChainNetwork, LeastProbs
from outdraft.drafters.shared.draw_options import DrawOptions
from outdraft.drafters.shared.limits import cutoffs_of, usable_depth
from outdraft.drafters.shared.networks.draft_network import DraftNetwork
from outdraft.kernels.decoder.chains import Chains, Draw
from outdraft.nn.context import AttentionContext

Watch = Callable[[list[int], Tensor], None]  # indices of sequences, their logits [n, V] of one step
# Where the rows of a guess stand (`TargetRows.tentative`, or a view): one of each sequence, so many positions after the
# pending one, with room for so many rows of each from it on
RowPlace = Callable[[Seq[Sequence], int, Seq[int]], AttentionContext]


def grow_own_chains(
    seqs: Seq[Sequence],
    budgets: Seq[Budget],
    network: DraftNetwork,
    place: RowPlace,
    options: DrawOptions,
    skips: Seq[Skip] | None = None,
    watch: Watch | None = None,
) -> list[Draft]:
    """A chain for each sequence. `skips[i]`: what it leaves out; those that leave out the same share their passes.

    `watch` is shown the logits that the tokens were chosen from; then the chains are stepped.
    """
    left_out = [NO_SKIP] * len(seqs) if skips is None else skips

    def feed(step: int, rows: list[int], tokens: list[int], num_open: int) -> Tensor:
        parts: list[tuple[list[int], Tensor]] = []
        for skip, members in _groups([left_out[i] for i in rows[:num_open]]):
            own = [seqs[rows[j]] for j in members]
            context = place(own, step, [1] * len(own))
            places = [seq.position(len(seq.tokens) - 1 + step) for seq in own]
            logits = network.logits([tokens[j] for j in members], places, context, range(len(own)), skip)
            parts.append((members, logits))
        logits = _joined(parts)
        if watch is not None:
            watch(rows[:num_open], logits)
        return logits

    def run(rows: list[int], own_depths: list[int], draws: list[Draw | None], least: LeastProbs | None) -> Chains:
        tokens: list[list[int]] = [[] for _ in rows]
        distributions: list[Tensor | None] = [None for _ in rows]
        surenesses: list[list[float]] = [[] for _ in rows]
        for skip, members in _groups([left_out[i] for i in rows]):
            own, deep = [seqs[rows[j]] for j in members], [own_depths[j] for j in members]
            found = network.chain(
                [seq.pending for seq in own],
                [seq.position(len(seq.tokens) - 1) for seq in own],
                place(own, 0, deep),
                deep,
                [draws[j] for j in members],
                skip,
                None if least is None else [least[j] for j in members],
            )
            for j, path, distribution in zip(members, found.tokens, found.distributions, strict=True):
                tokens[j], distributions[j] = path, distribution
            for j, sure in zip(members, found.surenesses or (), strict=least is not None):
                surenesses[j] = sure
        return Chains(
            tokens=tokens, distributions=distributions, states=None, surenesses=None if least is None else surenesses
        )

    depths = [usable_depth(seq, budget) for seq, budget in zip(seqs, budgets, strict=True)]
    own_rows = ChainNetwork(feed=feed, chain=run if network.runs_chains and watch is None else None)
    cutoffs = cutoffs_of(budgets, options.confidence_threshold)
    return grow_chains(seqs, depths, own_rows, cutoffs, sample=options.sample)


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

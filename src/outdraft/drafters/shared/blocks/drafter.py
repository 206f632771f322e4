"""A drafter that writes a block in one pass: a chain of its slots, or a tree over what each slot might be.

What stands behind the network's head may know the tokens chosen before a slot (`Correction`); the pass is one all the
same. Data in: sequences, and the target's states at the taps; data out: chains or trees, as deep as a block is long.
"""

from collections.abc import Sequence as Seq
from typing import Any

import torch
from torch import Tensor

from outdraft.core.draft import Draft
from outdraft.core.drafter import Traits
from outdraft.core.method import DrafterMethod, Paper
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.blocks.grow import BlockOptions, grow_slots
from outdraft.drafters.shared.blocks.kind import BlockKind
from outdraft.drafters.shared.blocks.net import BlockNet
from outdraft.drafters.shared.blocks.texts import BlockTexts
from outdraft.drafters.shared.features.network import whole_logits
from outdraft.drafters.shared.networks.prepare import prepare
from outdraft.drafters.shared.state_drafter import StateDrafter, chosen_model
from outdraft.models.networks.port import TargetPort


class BlockDrafter(StateDrafter):
    """One pass of the network a round, over all sequences that want a guess."""

    def __init__(self, options: BlockOptions, net: BlockNet, port: TargetPort, traits: Traits) -> None:
        self._texts = BlockTexts(net, port)
        super().__init__(self._texts, net.config.taps, traits)
        self._options, self._net, self._port = options, net, port

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """A guess for each sequence that has a budget and whose rows are known."""
        depths = [min(self._net.config.depth, depth) for depth in self.depths(seqs, budgets)]
        asked = [seq for seq, depth in zip(seqs, depths, strict=True) if depth > 0]
        states: dict[int, Tensor] = {}
        if asked:
            made = self._texts.blocks([seq.id for seq in asked], [seq.pending for seq in asked])
            states = {seq.id: one for seq, one in zip(asked, made, strict=True)}

        def say(step: int, own: Seq[Sequence], paths: Seq[Seq[int]]) -> Tensor:
            behind = [[seq.pending, *path] for seq, path in zip(own, paths, strict=True)]
            return self._say(step, [states[seq.id] for seq in own], behind)

        return grow_slots(self._options, seqs, depths, budgets, say)

    def _say(self, step: int, states: Seq[Tensor], paths: Seq[Seq[int]]) -> Tensor:
        """Logits [n, V] behind paths that begin at the anchor and have `step` tokens more."""
        net, first = self._net, self._net.config.first_slot
        whole, layers = torch.stack(list(states)), self._port.layers
        h = whole[:, first + step]
        scores = net.scores(h, layers.head)
        if net.correction is not None:
            before = torch.tensor([[*path[:first], *path] for path in paths], device=h.device)
            scores = net.correction(scores, h, net.summaries(whole, before, layers.embed)[:, -1])
        return whole_logits(scores, net.vocab, self._port.facts.vocab_size)


def block_method(
    kind: BlockKind[Any], *, summary: str, paper: Paper, also_called: tuple[str, ...] = ()
) -> DrafterMethod[BlockOptions, TargetPort, BlockDrafter]:
    """The registration of a method with networks of this kind."""

    def build(chosen: BlockOptions, port: TargetPort) -> BlockDrafter:
        home, native = chosen_model(chosen.model, kind.name), port.layers.native
        net = kind.load(home, port.facts)
        weights = prepare(net, port, chosen.quantization)
        net.exact = True
        options = chosen.fitted(None if native is None else native.kernels)
        return BlockDrafter(options, net, port, Traits(weights=(weights,), home=home))

    return DrafterMethod(
        name=kind.name,
        summary=summary,
        build=build,
        options=BlockOptions,
        paper=paper,
        also_called=also_called,
        shape_of=lambda chosen: "chain" if chosen.width == 1 else "tree",
        forms={"chain": {"width": 1}, "tree": {"width": 4}},
    )

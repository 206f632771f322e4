"""What a block network keeps of texts: the keys and values of what the target said of each committed row.

    text     x0 x1 x2 | x3 (pending, the anchor)      rows 0..2 are in the cache, or wait: then they are read first
    block    [x3, mask, mask, ...] at 3, 4, 5, ...    sees rows 0..2 and itself, and leaves nothing behind

Data in: what passes showed; data out: states and scores of the slots.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.drafters.shared.blocks.native import NativeBlocks
from outdraft.drafters.shared.blocks.net import BlockNet
from outdraft.drafters.shared.blocks.sees import CachedBlocks
from outdraft.drafters.shared.networks.paired_text import PairedTexts
from outdraft.models.networks.port import TargetPort

_CONTEXT = 0  # what is kept of a text's last row


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSlots:
    """What a pass says of one block."""

    states: Tensor  # [b, D] normed, of all slots
    known: Tensor  # what the correction's summaries read: these states, or what it makes of them and the scores
    scores: Tensor  # [S, V'] of the slots that guess, before what stands behind the head


class BlockTexts(PairedTexts):
    """The texts of a block network. `native`: its layers on the kernels; None: PyTorch runs them."""

    def __init__(self, net: BlockNet, port: TargetPort, native: NativeBlocks | None = None) -> None:
        layers = net.config.layers
        super().__init__(
            port,
            num_layers=layers.num_layers,
            num_kv_heads=layers.num_kv_heads,
            head_dim=layers.head_dim,
            max_len=layers.unshifted_len,
        )
        self.net, self._native = net, native

    def read_waiting(self, seqs: Seq[int]) -> None:
        """The keys and values of all rows that wait."""
        waiting = self.waiting(seqs, self.net.config.taps)
        slots = self.cache.grow_all(seqs, waiting.counts)
        positions = torch.tensor(waiting.places, device=self.port.facts.device)
        contexts = self.net.fuse(waiting.taps)
        for layer, made in enumerate(self.net.keys(contexts, positions)):
            keys, values = (torch.split(x, waiting.counts) for x in made)  # type: ignore[no-untyped-call]
            for seq, slot, k, v in zip(seqs, slots, keys, values, strict=True):
                self.cache.rows.write(seq, layer, slot, k, v)
        each: Seq[Tensor] = contexts.split(waiting.counts)  # type: ignore[no-untyped-call]
        self.have_read(seqs, [{_CONTEXT: own[-1].clone()} for own in each])

    def blocks(self, seqs: Seq[int], anchors: Seq[int], depths: Seq[int]) -> list[BlockSlots]:
        """A block for each text; `anchors`: their pending tokens, `depths`: tokens that each is to guess.

        Slots behind the deepest guess are left out where the network bears it.
        """
        if late := [seq for seq in seqs if self.texts[seq].tokens]:
            self.read_waiting(late)
        net, config, first = self.net, self.net.config, self.net.config.first_slot
        counts, ends = [first + depth for depth in depths], [self.texts[seq].end for seq in seqs]
        sizes = counts if net.can_shorten else [config.slots] * len(seqs)
        positions = torch.tensor(ends, device=self.port.facts.device)
        tokens, lent = torch.tensor(anchors, device=positions.device), self.port.layers
        if self._native is not None:
            size = max(sizes)
            rows = net.embed(tokens, positions, lent.embed, size=size)
            states, scores = self._native.run(self.cache, seqs, rows, ends, depths)
            parts = zip(seqs, states.split(size), scores.split(list(depths)), strict=True)  # type: ignore[no-untyped-call]
            return [self._slots(seq, own, net.adjusted(said)) for seq, own, said in parts]
        blocks = dict[int, Tensor]()
        for size in sorted({*sizes}):  # in a pass of its own, so that no text's numbers depend on another's depth
            own = [i for i, one in enumerate(sizes) if one == size]
            rows = net.embed(tokens[own], positions[own], lent.embed, size=size)
            context = CachedBlocks(self.cache.rows, [seqs[i] for i in own], size, config.sight)
            made = net.run(rows, positions[own], context).split(size)  # type: ignore[no-untyped-call]
            blocks.update(zip(own, made, strict=True))
        each = zip(seqs, [blocks[i] for i in range(len(seqs))], counts, strict=True)
        return [self._slots(seq, own, net.scores(own[first:count], lent.head)) for seq, own, count in each]

    def _slots(self, seq: int, states: Tensor, scores: Tensor) -> BlockSlots:
        """States [b, D] and scores [S, V'], and what the correction knows of this block alone."""
        last = self.texts[seq].last
        assert last is not None
        (known,) = self.net.known(states[None], scores[None], last[_CONTEXT][None], self.port.layers.embed)
        return BlockSlots(states=states, known=known, scores=scores)

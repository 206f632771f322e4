"""What a block network keeps of texts: the keys and values of what the target said of each committed row.

    text     x0 x1 x2 | x3 (pending, the anchor)      rows 0..2 are in the cache, or wait: then they are read first
    block    [x3, mask, mask, ...] at 3, 4, 5, ...    sees rows 0..2 and itself, and leaves nothing behind

Data in: what passes showed; data out: states [b, D] of the slots.
"""

from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from outdraft.drafters.shared.blocks.net import BlockNet
from outdraft.drafters.shared.blocks.sees import CachedBlocks
from outdraft.drafters.shared.networks.paired_text import PairedTexts
from outdraft.models.networks.port import TargetPort


class BlockTexts(PairedTexts):
    """The texts of a block network."""

    def __init__(self, net: BlockNet, port: TargetPort) -> None:
        layers = net.config.layers
        super().__init__(port, num_layers=layers.num_layers, num_kv_heads=layers.num_kv_heads, head_dim=layers.head_dim)
        self.net = net

    def read_waiting(self, seqs: Seq[int]) -> None:
        """The keys and values of all rows that wait."""
        waiting = self.waiting(seqs, self.net.config.taps)
        slots = self.cache.grow_all(seqs, waiting.counts)
        positions = torch.tensor(waiting.places, device=self.port.facts.device)
        for layer, made in enumerate(self.net.keys(self.net.fuse(waiting.taps), positions)):
            keys, values = (torch.split(x, waiting.counts) for x in made)  # type: ignore[no-untyped-call]
            for seq, slot, k, v in zip(seqs, slots, keys, values, strict=True):
                self.cache.rows.write(seq, layer, slot, k, v)
        self.have_read(seqs, [{} for _ in seqs])

    def blocks(self, seqs: Seq[int], anchors: Seq[int], depth: int) -> Tensor:
        """Normed states [B, b, D] of a block for each text; `anchors`: their pending tokens.

        Slots behind the deepest guess are left out where the network bears it.
        """
        if late := [seq for seq in seqs if self.texts[seq].tokens]:
            self.read_waiting(late)
        net, config, device = self.net, self.net.config, self.port.facts.device
        positions = torch.tensor([self.texts[seq].end for seq in seqs], device=device)
        size = config.first_slot + depth if net.bears_less else config.block_size
        rows = net.embed(torch.tensor(anchors, device=device), positions, self.port.layers.embed, size)
        context = CachedBlocks(self.cache.rows, seqs, size, config.sight)
        return net.run(rows, positions, context).view(len(seqs), size, -1)

"""A drafter that writes a block in one pass: a chain of its slots, or a tree over what each slot might be.

    text     x0 x1 x2 | x3 (pending, the anchor)      keys and values of rows 0..2, as the target's states make them,
                                                      are in the cache, or rows wait: then they are read first
    block    [x3, mask, mask, ...] at 3, 4, 5, ...    sees rows 0..2 and itself, and leaves nothing behind

What stands behind the network's head may know the tokens chosen before a slot (`Correction`); the pass is one all the
same. Data in: sequences, and the target's states at the taps; data out: chains or trees, as deep as a block is long.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from outdraft.core.draft import Draft
from outdraft.core.drafter import Traits
from outdraft.core.method import DrafterMethod, Paper
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.blocks.grow import BlockOptions, grow_marginals, grow_slots
from outdraft.drafters.shared.blocks.kind import BlockKind
from outdraft.drafters.shared.blocks.native import NativeBlocks, on_kernels
from outdraft.drafters.shared.blocks.net import BlockNet, within
from outdraft.drafters.shared.blocks.sees import CachedBlocks
from outdraft.drafters.shared.learning.vocab import whole_logits
from outdraft.drafters.shared.networks.paired_text import PairedTexts
from outdraft.drafters.shared.state_drafter import StateDrafter, chosen_model
from outdraft.models.networks.port import TargetPort
from outdraft.options.ranges import check_range

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
        super().__init__(port, layers, max_len=layers.unshifted_len)
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
        table = within(lent.embed, self.port.facts.max_len)
        if self._native is not None:
            size = max(sizes)
            rows = net.embed(tokens, positions, table, size=size)
            states, scores = self._native.run(self.cache, seqs, rows, ends, depths)
            parts = zip(seqs, states.split(size), scores.split(list(depths)), strict=True)  # type: ignore[no-untyped-call]
            return [self._slots(seq, own, net.adjusted(said)) for seq, own, said in parts]
        blocks = dict[int, Tensor]()
        for size in sorted({*sizes}):  # in a pass of its own, so that no text's numbers depend on another's depth
            own = [i for i, one in enumerate(sizes) if one == size]
            rows = net.embed(tokens[own], positions[own], table, size=size)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotOptions(BlockOptions):
    """Which network, how much of its block, which tree. Raises `ConfigError` naming what is out of range."""

    # slots of a block that are written, the anchor's included, of those that it was trained with; 0 is what the
    # network's files say (`runtime_block_size` of their `dflash_config`), else all
    runtime_block_size: int = 0

    def __post_init__(self) -> None:
        BlockOptions.__post_init__(self)
        check_range(self, "runtime_block_size", least=0)


class BlockDrafter(StateDrafter):
    """One pass of the network a round, over all sequences that want a guess."""

    def __init__(
        self, options: BlockOptions, net: BlockNet, port: TargetPort, traits: Traits, native: NativeBlocks | None = None
    ) -> None:
        self._texts = BlockTexts(net, port, native)
        super().__init__(self._texts, net.config.taps, traits)
        self._options, self._net, self._port = options, net, port
        self._judged = torch.empty(0)  # states and summaries of the slots that were asked about last

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        depths = [min(self._net.config.drafted, depth) for depth in self.depths(seqs, budgets)]
        asked = [seq for seq, depth in zip(seqs, depths, strict=True) if depth > 0]
        slots: dict[int, BlockSlots] = {}
        if asked:
            correction, whole = self._net.correction, self._net.config.drafted
            reads_all = correction is not None and correction.reads_scores
            own = [whole if reads_all else depth for depth in depths if depth > 0]
            made = self._texts.blocks([seq.id for seq in asked], [seq.pending for seq in asked], own)
            slots = {seq.id: one for seq, one in zip(asked, made, strict=True)}
        if self._net.correction is None:
            return grow_marginals(
                self._options, seqs, depths, budgets, {seq: self._whole(one.scores) for seq, one in slots.items()}
            )

        def say(step: int, own: Seq[Sequence], paths: Seq[Seq[int]]) -> Tensor:
            behind = [[seq.pending, *path] for seq, path in zip(own, paths, strict=True)]
            return self._say(step, [slots[seq.id] for seq in own], behind)

        sure = None if self._net.correction.chance is None else self._sure
        return grow_slots(self._options, seqs, depths, budgets, say, chances=sure)

    def _say(self, step: int, slots: Seq[BlockSlots], paths: Seq[Seq[int]]) -> Tensor:
        """Logits [n, V] behind paths that begin at the anchor and have `step` tokens more."""
        net, first = self._net, self._net.config.first_slot
        assert net.correction is not None
        scores = torch.stack([one.scores[step] for one in slots])
        known = torch.stack([one.known for one in slots])
        h = torch.stack([one.states[first + step] for one in slots])
        before = torch.tensor([[*path[:first], *path] for path in paths], device=h.device)
        summary = net.summaries(known, before, self._port.layers.embed)[:, -1]
        self._judged = torch.cat((h, summary.to(h)), -1)
        return self._whole(net.correction(scores, h, summary))

    def _whole(self, scores: Tensor) -> Tensor:
        """Of all tokens of the target: [n, V'] -> [n, V]."""
        return whole_logits(scores, self._net.vocab, self._port.facts.vocab_size)

    def _sure(self) -> Tensor:
        """How likely the slots are accepted [n] that were asked about last, by the network's own head."""
        assert self._net.correction is not None and self._net.correction.chance is not None
        return torch.sigmoid(self._net.correction.chance(self._judged).float())


def block_method(
    kind: BlockKind[Any], *, summary: str, paper: Paper, also_called: tuple[str, ...] = ()
) -> DrafterMethod[SlotOptions, TargetPort, BlockDrafter]:
    """The registration of a method with networks of this kind."""

    def build(chosen: SlotOptions, port: TargetPort) -> BlockDrafter:
        home, native = chosen_model(chosen.model, kind.name), port.layers.native
        net = kind.load(home, port.facts)
        if chosen.runtime_block_size:
            net.config = replace(net.config, runtime_block_size=chosen.runtime_block_size)
        blocks, weights = on_kernels(net, port, chosen.quantization)
        options = chosen.fitted(None if native is None else native.kernels)
        foretells = options.width == 1 and net.correction is not None and net.correction.chance is not None
        traits = Traits(
            weights=(weights,), home=home, shape=options.drafts, foretells=foretells, one_pass=not net.can_shorten
        )
        return BlockDrafter(options, net, port, traits, blocks)

    return DrafterMethod(
        name=kind.name,
        summary=summary,
        build=build,
        options=SlotOptions,
        paper=paper,
        also_called=also_called,
        shape_of=lambda chosen: chosen.drafts,
        forms={"chain": {"width": 1}, "tree": {"width": 4}},
    )

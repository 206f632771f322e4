"""Falcon: two tokens a pass, by rows that see each other; a network on the target's features, with an LSTM below.

    text      x0 x1 x2 x3 (pending)       rows (f0,x1) (f1,x2) (f2,x3): the LSTM reads each once
    pass 1    rows 1, 2                   guess f3 -> x4 and f4 -> x5, which do not know of each other
    pass 2    rows 1, 2, 3', 4'           (f3',x4) and (f4',x5) guess x6 and x7; they see rows 1 and 2 too

Gao et al., 2024, https://arxiv.org/abs/2412.12639. Rows of a guess are computed again in its next pass, and never kept.
Data in: sequences, and the target's last states; data out: chains or trees.
"""

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from outdraft.core.draft import Draft
from outdraft.core.drafter import Traits
from outdraft.core.method import arxiv
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.core.weights import Weights
from outdraft.drafters.falcon.net import FalconNet
from outdraft.drafters.shared.blocks.grow import BlockOptions, grow_slots
from outdraft.drafters.shared.blocks.sees import CachedBlocks
from outdraft.drafters.shared.heads.drafter import head_method
from outdraft.drafters.shared.heads.layers import shape_of
from outdraft.drafters.shared.learning.vocab import whole_logits
from outdraft.drafters.shared.networks.paired_text import PairedText, PairedTexts
from outdraft.drafters.shared.state_drafter import StateDrafter
from outdraft.models.networks.port import TargetPort


class FalconTexts(PairedTexts):
    """Keys and values of each text, and the LSTM's last k states. A state is of one text, so none is taken over."""

    def __init__(self, net: FalconNet, port: TargetPort) -> None:
        super().__init__(port, shape_of(net.config))
        self._net = net

    def begin(self, seqs: Seq[Sequence]) -> None:
        for seq in seqs:
            self.cache.add(seq.id)
            self.texts[seq.id] = PairedText(0)

    def knows(self, seq: Sequence) -> bool:
        """Whether there are k rows up to the pending token."""
        return super().knows(seq) and self.texts[seq.id].end - self.texts[seq.id].first >= self._net.block

    def read_waiting(self, seqs: Seq[int]) -> None:
        """Lead all rows that wait through the LSTM, text beside text, and keep their keys and values."""
        net, waiting = self._net, self.waiting(seqs, (self._net.config.tap,))
        before = [self.texts[seq].last for seq in seqs]
        positions = torch.tensor(waiting.places, device=self.port.facts.device)
        embeds = self.port.layers.embed(torch.tensor(waiting.tokens, device=positions.device), positions + 1)
        x = net.join(embeds, self.port.layers.norm(waiting.taps[0]) * net.config.scale)
        none = x.new_zeros(4, net.config.hidden_size)
        made = net.along(
            pad_sequence(x.split(waiting.counts), batch_first=True),  # type: ignore[no-untyped-call]
            torch.stack([none if one is None else one[0][-1] for one in before]),
        )
        states = [own[:count] for own, count in zip(made, waiting.counts, strict=True)]
        slots = self.cache.grow_all(seqs, waiting.counts)
        both = [part.split(waiting.counts) for part in net.keys(torch.cat(states), positions)]  # type: ignore[no-untyped-call]
        for seq, slot, k, v in zip(seqs, slots, *both, strict=True):
            self.cache.rows.write(seq, 0, slot, k, v)
        known = [own if one is None else torch.cat((one[0], own)) for one, own in zip(before, states, strict=True)]
        self.have_read(seqs, [{0: own[-net.block :].clone()} for own in known])

    def blocks(
        self, seqs: Seq[int], above: Seq[tuple[Tensor, Tensor]], tokens: Seq[Seq[int]]
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """States [m, 4, D] of the last rows, from the text's last k on, and the features [k, D] that they guess.

        `above`: the same of what k tokens [n, k] stand behind, which are read too; none: of the texts as they are.
        """
        net, device = self._net, self.port.facts.device
        if late := [seq for seq in seqs if self.texts[seq].tokens]:
            self.read_waiting(late)
        ends = torch.tensor([self.texts[seq].end for seq in seqs], device=device)
        states = [last[0] for last in (self.texts[seq].last for seq in seqs) if last is not None]
        if above:
            f, size = torch.stack([g for _, g in above]), len(above[0][0])
            places = (ends[:, None] + size - net.block + 1 + torch.arange(net.block, device=device)).flatten()
            embeds = self.port.layers.embed(torch.tensor(tokens, device=device).flatten(), places).view(f.shape)
            more = net.along(net.join(embeds, f), torch.stack([own[-1] for own, _ in above]))
            states = [torch.cat((own, new)) for (own, _), new in zip(above, more, strict=True)]
        context = CachedBlocks(self.cache.rows, seqs, len(states[0]), lambda layer: (None, False), overlap=net.block)
        return zip(states, net.guess(torch.stack(states), ends - net.block, context), strict=True)


class FalconDrafter(StateDrafter):
    """A pass for every k tokens of depth, over all sequences, and all paths of a tree, that go on."""

    def __init__(self, options: BlockOptions, net: FalconNet, port: TargetPort, weights: Weights, home: Path) -> None:
        net.exact, self._texts = True, FalconTexts(net, port)
        super().__init__(self._texts, (net.config.tap,), Traits(weights=(weights,), home=home, shape=options.drafts))
        self._options, self._net = options, net

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """A guess for each sequence that has a budget and whose rows are known."""
        k, texts = self._net.block, self._texts
        known: dict[tuple[int, tuple[int, ...]], tuple[Tensor, Tensor]] = {}  # text, path -> states, guessed features

        def say(step: int, own: Seq[Sequence], paths: Seq[Seq[int]]) -> Tensor:
            done = step - step % k
            asked = [(seq.id, tuple(path[:done])) for seq, path in zip(own, paths, strict=True)]
            if new := [one for one in dict.fromkeys(asked) if one not in known]:
                above = [known[seq, path[:-k]] for seq, path in new] if done else []
                made = texts.blocks([seq for seq, _ in new], above, [path[-k:] for _, path in new])
                known.update(zip(new, made, strict=True))
            said = self._net.logits(torch.stack([known[one][1][step - done] for one in asked]))
            return whole_logits(said, self._net.vocab, texts.port.facts.vocab_size)

        return grow_slots(self._options, seqs, self.depths(seqs, budgets), budgets, say)


METHOD = head_method(
    FalconNet,
    summary="two tokens a pass on the target's features, by rows that see each other, over an LSTM; a chain or a tree",
    paper=arxiv(
        "2412.12639",
        "Falcon: faster and parallel inference of large language models through enhanced semi-autoregressive drafting "
        "and custom-designed decoding tree",
    ),
    options=BlockOptions,
    drafter=FalconDrafter,
)

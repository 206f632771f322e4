"""Falcon: two tokens a pass, by rows that see each other; a network on the target's features, with an LSTM below.

Gao et al., "Falcon", 2024, https://arxiv.org/abs/2412.12639.

    text      x0 x1 x2 x3 (pending)       rows (f0,x1) (f1,x2) (f2,x3): the LSTM reads each once
    pass 1    rows 1, 2                   guess f3 -> x4 and f4 -> x5, which do not know of each other
    pass 2    rows 1, 2, 3', 4'           (f3',x4) and (f4',x5) guess x6 and x7; they see rows 1 and 2 too

Rows of a guess are computed again in its next pass, and never kept. Data in: sequences, and the target's last states;
data out: chains or trees.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from outdraft.core.draft import Draft
from outdraft.core.drafter import Traits
from outdraft.core.method import DrafterMethod, arxiv
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.drafters.falcon.net import FalconNet
from outdraft.drafters.shared.blocks.grow import BlockOptions, grow_slots
from outdraft.drafters.shared.blocks.sees import CachedBlocks
from outdraft.drafters.shared.heads.drafter import open_heads
from outdraft.drafters.shared.networks.paired_text import PairedText, PairedTexts
from outdraft.drafters.shared.state_drafter import StateDrafter, chosen_model
from outdraft.models.networks.port import TargetPort

_ROWS, _STATE = 0, 1  # what is kept of a text: the LSTM's last k outputs [k, D], and its state [4, D]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """A text and tokens behind it, as far as the network has read them; k rows are of the text itself."""

    rows: Tensor  # [m, D] the LSTM's outputs
    state: Tensor  # [4, D] the LSTM's, behind the last row
    guessed: Tensor  # [k, D] the features of the next k positions


class FalconTexts(PairedTexts):
    """What is known of each text. The LSTM's state is of one text, so no text takes over the rows of another."""

    def __init__(self, net: FalconNet, port: TargetPort) -> None:
        config = net.config
        super().__init__(port, num_layers=1, num_kv_heads=config.stem_kv_heads, head_dim=config.stem_head_dim)
        self._net, self._k = net, int(config.num_heads)

    def begin(self, seqs: Seq[Sequence]) -> None:
        """An empty memory for each."""
        for seq in seqs:
            self.cache.add(seq.id)
            self.texts[seq.id] = PairedText(0)

    def knows(self, seq: Sequence) -> bool:
        """Whether there are k rows up to the pending token."""
        return super().knows(seq) and self.texts[seq.id].end - self.texts[seq.id].first >= self._k

    def read_waiting(self, seqs: Seq[int]) -> None:
        """Lead all rows that wait through the LSTM, text beside text, and keep their keys and values."""
        net, waiting = self._net, self.waiting(seqs, (self._net.config.tap,))
        positions = torch.tensor(waiting.places, device=self.port.facts.device)
        ids = torch.tensor(waiting.tokens, device=positions.device)
        f = self.port.layers.norm(waiting.taps[0]) * net.config.scale
        inputs = [
            pad_sequence(x.split(waiting.counts), batch_first=True)  # type: ignore[no-untyped-call]
            for x in (self.port.layers.embed(ids, positions + 1), f)
        ]
        before = [self.texts[seq].last for seq in seqs]
        zeros = torch.zeros(4, net.config.hidden_size, dtype=net.dtype, device=positions.device)
        outputs, states = net.along(*inputs, torch.stack([zeros if one is None else one[_STATE] for one in before]))
        rows = [own[:count] for own, count in zip(outputs, waiting.counts, strict=True)]
        slots = self.cache.grow_all(seqs, waiting.counts)
        made = [x.split(waiting.counts) for x in net.keys(torch.cat(rows), positions)]  # type: ignore[no-untyped-call]
        for seq, slot, k, v in zip(seqs, slots, *made, strict=True):
            self.cache.rows.write(seq, 0, slot, k, v)
        last = []
        for i, one in enumerate(before):
            known = rows[i] if one is None else torch.cat((one[_ROWS], rows[i]))
            last.append({_ROWS: known[-self._k :].clone(), _STATE: states[i, waiting.counts[i] - 1].clone()})
        self.have_read(seqs, last)

    def chains(self, seqs: Seq[int]) -> list[Chain]:
        """Each text as it is."""
        if late := [seq for seq in seqs if self.texts[seq].tokens]:
            self.read_waiting(late)
        known = [self.texts[seq].last or {} for seq in seqs]
        return self._guessed(seqs, [one[_ROWS] for one in known], [one[_STATE] for one in known])

    def behind(self, seqs: Seq[int], chains: Seq[Chain], tokens: Seq[Seq[int]]) -> list[Chain]:
        """Chains of one length with k tokens more, [n, k], of these texts."""
        device, more = self.port.facts.device, len(chains[0].rows) - self._k + 1
        places = torch.tensor([self.texts[seq].end + more for seq in seqs], device=device)
        positions = (places[:, None] + torch.arange(self._k, device=device)).flatten()
        embeds = self.port.layers.embed(torch.tensor(tokens, device=device).flatten(), positions)
        f = torch.stack([chain.guessed for chain in chains])
        outputs, states = self._net.along(embeds.view_as(f), f, torch.stack([chain.state for chain in chains]))
        rows = [torch.cat((chain.rows, own)) for chain, own in zip(chains, outputs, strict=True)]
        return self._guessed(seqs, rows, list(states[:, -1]))

    def _guessed(self, seqs: Seq[int], rows: Seq[Tensor], states: Seq[Tensor]) -> list[Chain]:
        """Rows [m, D] of each, all of one length."""
        firsts = torch.tensor([self.texts[seq].end - self._k for seq in seqs], device=self.port.facts.device)
        context = CachedBlocks(self.cache.rows, seqs, len(rows[0]), lambda layer: (None, False), overlap=self._k)
        guessed = self._net.guess(torch.stack(list(rows)), firsts, context)
        return [Chain(rows=own, state=state, guessed=g) for own, state, g in zip(rows, states, guessed, strict=True)]


class FalconDrafter(StateDrafter):
    """A pass for every k tokens of depth, over all sequences, and all paths of a tree, that go on."""

    def __init__(self, options: BlockOptions, net: FalconNet, port: TargetPort, traits: Traits) -> None:
        self._texts = FalconTexts(net, port)
        super().__init__(self._texts, (net.config.tap,), traits)
        self._options, self._net = options, net

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """A guess for each sequence that has a budget and whose rows are known."""
        k, known = int(self._net.config.num_heads), dict[tuple[int, tuple[int, ...]], Chain]()

        def say(step: int, own: Seq[Sequence], paths: Seq[Seq[int]]) -> Tensor:
            done = step - step % k
            asked = [(seq.id, tuple(path[:done])) for seq, path in zip(own, paths, strict=True)]
            if new := [one for one in dict.fromkeys(asked) if one not in known]:
                ids = [seq for seq, _ in new]
                made = (
                    self._texts.chains(ids)
                    if not done
                    else self._texts.behind(
                        ids, [known[seq, path[:-k]] for seq, path in new], [path[-k:] for _, path in new]
                    )
                )
                known.update(zip(new, made, strict=True))
            return self._net.logits(torch.stack([known[one].guessed[step - done] for one in asked]), 0)

        return grow_slots(self._options, seqs, self.depths(seqs, budgets), budgets, say)


def build(chosen: BlockOptions, port: TargetPort) -> FalconDrafter:
    """Load the network. Raises `CapabilityError` for one of another target."""
    home, native = chosen_model(chosen.model, "falcon"), port.layers.native
    net, weights = open_heads(FalconNet, str(home), chosen.quantization, port)
    net.exact = True
    options = chosen.fitted(None if native is None else native.kernels)
    return FalconDrafter(options, net, port, Traits(weights=(weights,), home=home))


METHOD = DrafterMethod(
    name="falcon",
    summary="two tokens a pass on the target's features, by rows that see each other, over an LSTM; a chain or a tree",
    build=build,
    options=BlockOptions,
    paper=arxiv(
        "2412.12639",
        "Falcon: faster and parallel inference of large language models through enhanced "
        "semi-autoregressive drafting and custom-designed decoding tree",
    ),
    shape_of=lambda chosen: "chain" if chosen.width == 1 else "tree",
    forms={"chain": {"width": 1}, "tree": {"width": 4}},
)

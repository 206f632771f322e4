"""The states that heads read: one [D] a text, behind which its pending token stands.

    text    x0 x1 x2 x3(pending)          the target's states  h0 h1 h2
    last    h2                            h2 chose x3; heads read it and guess x4, x5, ...
    stem    (h0,x1) (h1,x2) (h2,x3)       each once through the stem, in order; heads read the last row's output

Rows of a stem wait until a guess is wanted, and are then read together. Data in: what a pass showed; data out: one
state a sequence. A sequence whose prompt is not read has none.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from itertools import accumulate

import torch
from torch import Tensor

from outdraft.core.drafter import Seen
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.heads.config import HeadConfig, StemConfig
from outdraft.drafters.shared.heads.layers import Stem, shape_of
from outdraft.drafters.shared.heads.net import HeadNet
from outdraft.drafters.shared.networks.paired_text import PairedTexts
from outdraft.models.networks.port import TargetPort

Norm = Callable[[Tensor], Tensor]  # what is done to states [n, D] before they are read


class LastStates:
    """The target's own, by sequence. `tap`: after how many layers."""

    def __init__(self, tap: int, norm: Norm) -> None:
        self._tap, self._norm = tap, norm
        self._known: dict[int, tuple[int, Tensor]] = {}  # sequence -> position of the state, state [D]

    @property
    def is_empty(self) -> bool:
        return not self._known

    def begin(self, seqs: Seq[Sequence]) -> None:
        """Nothing is known before the prompt is read."""

    def learn(self, one: Seen) -> None:
        """Keep the last committed row's."""
        self._known[one.seq.id] = one.start + one.num_committed - 1, one.hidden[self._tap][-1]

    def knows(self, seq: Sequence) -> bool:
        """Whether the state that chose the pending token is here."""
        found = self._known.get(seq.id)
        return found is not None and found[0] == len(seq.tokens) - 2

    def room(self, seq: Sequence) -> int:
        """A state has no position, so the context is the target's."""
        return seq.max_len

    def of(self, seqs: Seq[Sequence]) -> Tensor:
        """The states, one a sequence: [n, D]."""
        return self._norm(torch.stack([self._known[seq.id][1] for seq in seqs]))

    def forget(self, seqs: Seq[Sequence]) -> None:
        for seq in seqs:
            self._known.pop(seq.id, None)


class StemStates(PairedTexts):
    """What a stem makes of them, by sequence. Prepares the stem for inference. `finish`: what is done to its outputs
    [n, D] that heads read, once for each."""

    def __init__(
        self, stem: Stem, config: StemConfig, norm: Norm, port: TargetPort, finish: Norm = lambda g: g
    ) -> None:
        super().__init__(port, shape_of(config))
        stem.exact = True
        self._stem, self._tap, self._norm, self._finish = stem, config.tap, norm, finish

    def of(self, seqs: Seq[Sequence]) -> Tensor:
        """What the heads read, one a sequence, which may be named several times: [n, W]."""
        waiting = [i for i in dict.fromkeys(seq.id for seq in seqs) if self.texts[i].tokens]
        if waiting:
            self.read_waiting(waiting)
        found = [self.texts[seq.id].last for seq in seqs]
        return torch.stack([one[self._tap] for one in found if one is not None])

    def read_waiting(self, seqs: Seq[int]) -> None:
        waiting = self.waiting(seqs, (self._tap,))
        device = self.port.facts.device
        positions = torch.tensor(waiting.places, device=device)
        embeds = None
        if self._stem.reads_tokens:
            embeds = self.port.layers.embed(torch.tensor(waiting.tokens, device=device), positions + 1)
        context = self.cache.extend(seqs, waiting.counts)
        outputs = self._stem(self._norm(waiting.taps[0]), embeds, positions, context)
        outputs = self._finish(outputs[[stop - 1 for stop in accumulate(waiting.counts)]])  # [B, W]
        self.have_read(seqs, [{self._tap: output} for output in outputs])


def states_of(net: HeadNet, port: TargetPort) -> LastStates | StemStates:
    """What these heads read: the target's last states behind its norm, or what the stem makes of them."""
    config: HeadConfig = net.config

    def norm(h: Tensor) -> Tensor:
        return port.layers.norm(h) * config.scale

    if net.stem is None:
        return LastStates(config.tap, norm)
    assert isinstance(config, StemConfig)
    return StemStates(net.stem, config, norm, port, net.finish)

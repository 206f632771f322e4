"""While the prompt is read, find the attention sublayers that hardly change their input; draft without them.

    cosine of the state before and after each attention sublayer, mean over the prompt's rows
    layer       0     1     2     3     4     5
    cosine     .61   .98   .96   .99   .93   .97       threshold .97, slack .01: drop 1 and 3, and 2 beside them

Metel et al., "Draft on the fly: adaptive self-speculative decoding using cosine similarity", 2024,
https://arxiv.org/abs/2410.01028. No search and no extra pass: the states are taps of the passes that read the prompt.
The paper's two structural rules are not public; ours: the first and the last layer stay, and a neighbour of what is
dropped may be a little less alike.
Data in: sequences; data out: chains with the distributions they were drawn from (none at temperature 0).
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from outdraft.core.draft import Draft
from outdraft.core.drafter import Seen
from outdraft.core.method import DrafterMethod, arxiv
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.core.skip import NO_SKIP, Skip
from outdraft.core.target import Needs, after_attention
from outdraft.drafters.shared.draw_options import DrawOptions
from outdraft.drafters.shared.networks.draft_network import target_network
from outdraft.drafters.shared.own_layers.own_chain import grow_own_chains
from outdraft.drafters.shared.plain import PlainDrafter
from outdraft.models.networks.port import TargetPort
from outdraft.options.ranges import check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class OnTheFlySkipOptions(DrawOptions):
    """What counts as unchanged. Raises `ConfigError` naming what is out of range."""

    threshold: float = 0.97  # an attention is left out if the cosine between its output and its input is at least this
    slack: float = 0.01  # how much lower that cosine may be for an attention beside one that is left out
    keep_ends: bool = True  # whether the first and the last layer are always computed

    def __post_init__(self) -> None:
        DrawOptions.__post_init__(self)
        check_range(self, "threshold", least=-1, most=1, note="it is a cosine")
        check_range(self, "slack", least=0)


class OnTheFlySkipDrafter(PlainDrafter):
    """A skip set for each sequence, from its own prompt."""

    def __init__(self, options: OnTheFlySkipOptions, port: TargetPort) -> None:
        layers = range(port.facts.num_layers)
        self.needs = Needs(prompt_taps=(*layers, *map(after_attention, layers)), layer_subset=True)
        self._options = options
        self._port = port
        self._network = target_network(port)
        self._sums: dict[int, tuple[Tensor, int]] = {}  # [L] of the prompt rows' cosines so far, and how many rows
        self._skips: dict[int, Skip] = {}

    def begin(self, seqs: Seq[Sequence]) -> None:
        for seq in seqs:
            self._skips[seq.id] = NO_SKIP
            self._sums[seq.id] = torch.zeros(self._port.facts.num_layers), 0

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """A chain without the dropped attentions; none where nothing was dropped, for it would cost what plain does."""
        skips = [self._skips[seq.id] for seq in seqs]
        own = [budget if skip else replace(budget, depth=0) for skip, budget in zip(skips, budgets, strict=True)]
        return grow_own_chains(seqs, own, self._network, self._port.rows.tentative, self._options, skips)

    def observe(self, seen: Seq[Seen]) -> None:
        """Measure the prompt's rows; when it is read, choose.

        A pass that reads another prompt shows the rows of texts that are being written too: they do not count.
        """
        for one in seen:
            key = one.seq.id
            if key not in self._sums:
                continue
            if after_attention(0) in one.hidden and one.num_committed > (one.draft is not None):
                cosines = torch.stack([self._cosine(one, layer) for layer in range(self._port.facts.num_layers)])
                total, rows = self._sums[key]
                self._sums[key] = total.to(cosines) + cosines, rows + one.num_committed
            if one.draft is not None:
                total, rows = self._sums.pop(key)
                if rows:
                    self._skips[key] = choose((total / rows).tolist(), self._options)

    @staticmethod
    def _cosine(one: Seen, layer: int) -> Tensor:
        before, after = one.hidden[layer].float(), one.hidden[after_attention(layer)].float()
        return F.cosine_similarity(before, after, dim=-1).sum()

    def end(self, seqs: Seq[Sequence]) -> None:
        for seq in seqs:
            self._sums.pop(seq.id, None)
            self._skips.pop(seq.id, None)


def choose(cosines: list[float], options: OnTheFlySkipOptions) -> Skip:
    """The attentions to drop, given each layer's cosine."""
    last = len(cosines) - 1
    inner = range(1, last) if options.keep_ends else range(last + 1)
    dropped = {i for i in inner if cosines[i] >= options.threshold}
    near = options.threshold - options.slack
    beside = {i for i in inner if cosines[i] >= near and dropped & {i - 1, i + 1}}
    return Skip(attention=frozenset(dropped | beside))


METHOD = DrafterMethod(
    name="on_the_fly_skip",
    summary="the target without the attentions that hardly change this prompt",
    build=OnTheFlySkipDrafter,
    options=OnTheFlySkipOptions,
    paper=arxiv("2410.01028", "Draft on the fly: adaptive self-speculative decoding using cosine similarity"),
)

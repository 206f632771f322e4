"""Kangaroo: the target's first layers and an adapter with an attention of its own draft, the remaining layers verify.

Liu et al., "Kangaroo: lossless self-speculative decoding via double early exiting", 2024,
https://arxiv.org/abs/2404.18911.

    draft     pending -> layers [0, E) -> adapter -> head -> t1 -> layers [0, E) -> adapter -> head -> t2 ...
    verify    all rows continue at layer E (`Draft.resume`): the first layers are never computed twice
    adapter   keys and values of committed rows, from the target's states after E layers; those of a guess are dropped
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from outdraft.core.draft import Draft, Resume
from outdraft.core.drafter import Traits
from outdraft.core.method import DrafterMethod, arxiv
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.core.target import Needs
from outdraft.drafters.kangaroo.net import KangarooAdapter, KangarooConfig, NativeAdapter, load_adapter, on_kernels
from outdraft.drafters.shared.chains.grow import grow_chains
from outdraft.drafters.shared.chains.network import ChainNetwork
from outdraft.drafters.shared.draw_options import DrawOptions
from outdraft.drafters.shared.learning.vocab import whole_logits
from outdraft.drafters.shared.limits import cutoffs_of
from outdraft.drafters.shared.networks.paired_text import PairedTexts
from outdraft.drafters.shared.networks.prepare import pack_net, round_net
from outdraft.drafters.shared.state_drafter import StateDrafter, chosen_model
from outdraft.models.networks.port import TargetPort
from outdraft.options.base import NetworkOptions
from outdraft.options.errors import CapabilityError


@dataclass(frozen=True, slots=True, kw_only=True)
class KangarooOptions(DrawOptions, NetworkOptions):
    """Which adapter. Raises `ConfigError` naming what is out of range."""

    model: str | None = None  # the directory of the adapter; if none is given, what lies in MODEL/head

    def __post_init__(self) -> None:
        DrawOptions.__post_init__(self)
        NetworkOptions.__post_init__(self)


class AdapterTexts(PairedTexts):
    """The adapter's rows of each text: committed ones, and behind them those of a guess."""

    def __init__(self, config: KangarooConfig, adapter: KangarooAdapter | NativeAdapter, port: TargetPort) -> None:
        super().__init__(port, config.layers)
        self._adapter, self._tap = adapter, config.exit_layer

    def read_waiting(self, seqs: Seq[int]) -> None:
        """All committed rows that wait, in one ragged pass."""
        waiting = self.waiting(seqs, (self._tap,))
        positions = torch.tensor(waiting.places, device=self.port.facts.device)
        self._adapter(waiting.taps[0], positions, self.cache.extend(seqs, waiting.counts))
        self.have_read(seqs, [{} for _ in seqs])

    def guess(self, seqs: Seq[int], h: Tensor, step: int) -> Tensor:
        """One more row of each guess: states [n, D] after E layers -> what the head reads [n, D]."""
        if late := [seq for seq in seqs if self.texts[seq].tokens]:
            self.read_waiting(late)
        places = [self.texts[seq].end + step for seq in seqs]
        context = self.cache.extend(seqs, [1] * len(seqs))
        found: Tensor = self._adapter(h, torch.tensor(places, device=h.device), context)
        return found


class KangarooDrafter(StateDrafter):
    """Sequences whose chain ends early drop out of the drafting passes; the others go on together."""

    def __init__(
        self,
        options: KangarooOptions,
        adapter: KangarooAdapter,
        native: NativeAdapter | None,
        port: TargetPort,
        traits: Traits,
    ) -> None:
        """`native`: the adapter on the kernels, where they hold the target."""
        self.exit_layer = adapter.config.exit_layer
        self._texts = AdapterTexts(adapter.config, native or adapter, port)
        super().__init__(self._texts, (self.exit_layer,), traits)
        self.needs = Needs(taps=(self.exit_layer,), resume_layer=self.exit_layer)
        self._options, self._port, self._vocab = options, port, adapter.vocab
        self._logits = (native or adapter).logits

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """A chain for each text whose rows are known. Every node of it has been through the first layers."""
        depths, hidden = self.depths(seqs, budgets), [list[Tensor]() for _ in seqs]  # [D] of each node

        def feed(step: int, rows: list[int], tokens: list[int], num_open: int) -> Tensor:
            own = [seqs[i] for i in rows]
            context = self._port.rows.tentative(own, step, [1] * len(own))
            places = [seq.position(len(seq.tokens) - 1 + step) for seq in own]
            h = self._port.layers.run(torch.tensor(tokens), torch.tensor(places), context, stop=self.exit_layer)
            for i, row in zip(rows, h, strict=True):
                hidden[i].append(row)
            if not num_open:
                return h
            said = self._logits(self._texts.guess([seq.id for seq in own[:num_open]], h[:num_open], step))
            return whole_logits(said, self._vocab, self._port.facts.vocab_size)

        network = ChainNetwork(feed=feed, feed_last=True)
        cutoffs = cutoffs_of(budgets, self._options.confidence_threshold)
        try:
            drafts = grow_chains(seqs, depths, network, cutoffs, sample=self._options.sample)
        finally:  # also where a cache became full on the way
            for seq, depth in zip(seqs, depths, strict=True):
                if depth:
                    self._texts.cache.keep(seq.id, ())
        layer = self.exit_layer
        return [
            replace(draft, resume=Resume(layer=layer, hidden=torch.stack(rows[: draft.num_nodes]))) if rows else draft
            for draft, rows in zip(drafts, hidden, strict=True)
        ]


def build(options: KangarooOptions, port: TargetPort) -> KangarooDrafter:
    """Load the adapter, and check that it fits the target."""
    home, facts = chosen_model(options.model, "kangaroo"), port.facts
    adapter = load_adapter(home, facts.vocab_size, facts.dtype, facts.device)
    config = adapter.config
    if config.hidden_size != facts.hidden_size or not 0 < config.exit_layer < facts.num_layers:
        raise CapabilityError(
            f"the adapter in {home} is {config.hidden_size} wide and stands after {config.exit_layer} layers; the "
            f"target is {facts.hidden_size} wide and has {facts.num_layers}: an adapter belongs to the target it was "
            "trained with"
        )
    adapter.borrow(port)
    weights, target = round_net(adapter, port, options.quantization)
    native = None if target is None else on_kernels(adapter, target)
    if native is None:
        pack_net(adapter, target)
    return KangarooDrafter(options, adapter, native, port, Traits(weights=(weights,), home=home))


METHOD = DrafterMethod(
    name="kangaroo",
    summary="the target's first layers and a small attention behind them draft, the others verify",
    build=build,
    options=KangarooOptions,
    paper=arxiv("2404.18911", "Kangaroo: lossless self-speculative decoding via double early exiting"),
)

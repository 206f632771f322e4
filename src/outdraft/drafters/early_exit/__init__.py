"""The target's first layers draft, its remaining layers verify: one set of weights, one cache.

Elhoushi et al., "LayerSkip: enabling early exit inference and self-speculative decoding", 2024,
https://arxiv.org/abs/2404.16710.

    draft   pending -> layers [0, E) -> exit head -> t1 -> layers [0, E) -> exit head -> t2 ...
    verify  all rows continue at layer E (`Draft.resume`): the first layers are never computed twice

Data in: sequences; data out: chains with the hidden states at the exit. No state of its own between rounds: the rows of
the first layers stand in the target's cache, tentative, until the next pass.
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
from outdraft.core.weights import Weights
from outdraft.drafters.early_exit.net import EarlyExitHead, load_exit_head, pack_guesser
from outdraft.drafters.shared.chains.grow import grow_chains
from outdraft.drafters.shared.chains.network import ChainNetwork, LeastProbs
from outdraft.drafters.shared.draw_options import DrawOptions
from outdraft.drafters.shared.limits import cutoffs_of, usable_depth
from outdraft.drafters.shared.networks.load_draft import module_weights
from outdraft.drafters.shared.networks.prepare import make_exact
from outdraft.drafters.shared.plain import PlainDrafter
from outdraft.kernels.decoder.chains import Chains, Draw
from outdraft.kernels.decoder.matrix import STEP
from outdraft.models.networks.guess import NativeGuesser
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import CapabilityError
from outdraft.options.ranges import check_range
from outdraft.weights.hub import resolve


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyExitOptions(DrawOptions):
    """Where to exit. Raises `ConfigError` naming what is out of range."""

    # a trained exit head, a directory; when empty, the target's own final norm and head are used
    model: str = ""
    # how many of the target's first layers draft (E); 0 takes the trained head's number (beside a head any other is
    # refused), or without a head a quarter of the layers
    exit_layer: int = 0

    def __post_init__(self) -> None:
        DrawOptions.__post_init__(self)
        check_range(self, "exit_layer", least=0, note="0 is the default")


class EarlyExitDrafter(PlainDrafter):
    """Sequences whose chain ends early drop out of the drafting passes; the others go on together."""

    def __init__(
        self,
        options: EarlyExitOptions,
        port: TargetPort,
        head: EarlyExitHead | None,
        layer: int,
        native: NativeGuesser | None = None,
        weights: tuple[Weights, ...] = (),
    ) -> None:
        """`native`: layers and head on the kernels, where they hold the target. `weights`: the head's."""
        self._native = native
        self.needs = Needs(resume_layer=layer)
        self.traits = Traits(weights=weights, home=resolve(options.model) if options.model else None)
        self.exit_layer = layer
        self._options = options
        self._port = port
        self._head = head

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """A chain by the first layers. Every node of it, the last included, has been through them."""
        depths = [usable_depth(seq, budget) for seq, budget in zip(seqs, budgets, strict=True)]
        hidden: list[list[Tensor]] = [[] for _ in seqs]  # [D] of each node
        options, network = self._options, self._chain_network(seqs, hidden)
        cutoffs = cutoffs_of(budgets, options.confidence_threshold)
        return [
            replace(draft, resume=Resume(layer=self.exit_layer, hidden=torch.stack(rows[: draft.num_nodes])))
            if rows
            else draft
            for draft, rows in zip(
                grow_chains(seqs, depths, network, cutoffs, sample=options.sample), hidden, strict=True
            )
        ]

    def _chain_network(self, seqs: Seq[Sequence], hidden: list[list[Tensor]]) -> ChainNetwork:
        """The first layers and the exit; what each row's state was there is written into `hidden`."""

        def feed(step: int, rows: list[int], tokens: list[int], num_open: int) -> Tensor:
            h, logits = self._step([seqs[i] for i in rows], step, tokens, num_open)
            for i, row in zip(rows, h, strict=True):
                hidden[i].append(row)
            return logits

        def run(rows: list[int], depths: list[int], draws: list[Draw | None], least: LeastProbs | None) -> Chains:
            own = [seqs[i] for i in rows]
            context = self._port.rows.tentative(own, 0, [depth + 1 for depth in depths])
            pending, places = [seq.pending for seq in own], [seq.position(len(seq.tokens) - 1) for seq in own]
            assert self._native is not None
            found = self._native.chain(
                pending, places, context, depths, draws, feed_last=True, states=True, cutoffs=least
            )
            assert found.states is not None
            for i, depth, states in zip(rows, depths, found.states, strict=True):
                hidden[i] = list(states[: depth + 1])
            return found

        return ChainNetwork(feed=feed, chain=run if self._native is not None else None, feed_last=True)

    def _step(self, seqs: Seq[Sequence], step: int, tokens: list[int], num_open: int) -> tuple[Tensor, Tensor]:
        """One token of each sequence: states [n, D] at the exit, logits [num_open, V] of the first `num_open`."""
        context = self._port.rows.tentative(seqs, step, [1] * len(seqs))
        places = [seq.position(len(seq.tokens) - 1 + step) for seq in seqs]
        if self._native is not None:
            h, logits = self._native.feed(tokens, places, context, range(len(tokens)))
            return h, logits[:num_open]
        h = self._port.layers.run(torch.tensor(tokens), torch.tensor(places), context, stop=self.exit_layer)
        if num_open == 0:
            return h, h
        first = h[:num_open]
        return h, self._port.layers.logits(first if self._head is None else self._head(first))


def build(options: EarlyExitOptions, port: TargetPort) -> EarlyExitDrafter:
    """Load the exit head, if one is named, and check that it fits the target."""
    head, native = None, None
    layer = options.exit_layer or max(1, port.facts.num_layers // 4)
    if options.model:
        head = load_exit_head(resolve(options.model), port.facts.dtype, port.facts.device)
        layer = options.exit_layer or head.config.exit_layer
        if head.config.hidden_size != port.facts.hidden_size:
            raise CapabilityError(
                f"exit head {options.model!r} is {head.config.hidden_size} wide, the target {port.facts.hidden_size}: "
                "a head belongs to the target it was trained with"
            )
        if layer != head.config.exit_layer:
            raise CapabilityError(
                f"exit_layer={layer}, but exit head {options.model!r} was trained after {head.config.exit_layer} "
                "layers: leave exit_layer out, give model='' to draft without a head, or train a head for that layer "
                "(outdraft train early_exit)"
            )
    if not 0 < layer < port.facts.num_layers:
        raise CapabilityError(
            f"exit_layer={layer} leaves nothing to draft or to verify with: the target has {port.facts.num_layers} "
            "layers; choose fewer, and at least one"
        )
    target = port.layers.native if head is None or head.config.inner_size % STEP == 0 else None
    weights = () if head is None else (module_weights(head, native=target is not None),)
    if target is not None:
        native = pack_guesser(target, head, layer)
    elif head is not None:
        make_exact(head)
    return EarlyExitDrafter(options, port, head, layer, native, weights)


METHOD = DrafterMethod(
    name="early_exit",
    summary="the target's first layers draft, the others verify: one model, one cache",
    build=build,
    options=EarlyExitOptions,
    paper=arxiv("2404.16710", "LayerSkip: enabling early exit inference and self-speculative decoding"),
)

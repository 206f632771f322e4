"""The target's first layers draft, its remaining layers verify: one set of weights, one cache.

Elhoushi et al., "LayerSkip: enabling early exit inference and self-speculative decoding", 2024,
https://arxiv.org/abs/2404.16710; Liu et al., "Kangaroo: lossless self-speculative decoding via double early exiting",
2024, https://arxiv.org/abs/2404.18911.

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
from outdraft.core.drafter import Seen
from outdraft.core.errors import CapabilityError
from outdraft.core.policy import Budget
from outdraft.core.ranges import check_range
from outdraft.core.sequence import Sequence
from outdraft.core.target import Needs, TargetPort
from outdraft.drafters.early_exit.net import EarlyExitHead, load_exit_head, pack_guesser
from outdraft.drafters.shared.exact import make_exact
from outdraft.drafters.shared.limits import usable_depth
from outdraft.drafters.shared.native_chains import Floors, grow_chains_natively
from outdraft.drafters.shared.own_chain import OwnChainOptions
from outdraft.kernels.guesser import Chains, Draw
from outdraft.models.guess import NativeGuesser
from outdraft.models.native import NativeDecoder
from outdraft.weights.hub import resolve


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyExitOptions(OwnChainOptions):
    """Where to exit. Raises `ConfigError` naming what is out of range."""

    model: str = ""  # directory of a trained exit head, or "zoo:early_exit"; empty: the target's own norm and head
    exit_layer: int = 0  # E, layers that draft; 0: the head's own, or a quarter of the target's

    def __post_init__(self) -> None:
        OwnChainOptions.__post_init__(self)
        check_range(self, "exit_layer", least=0, note="0 is the default")


class EarlyExitDrafter:
    """Sequences whose chain ends early drop out of the drafting passes; the others go on together."""

    def __init__(
        self,
        options: EarlyExitOptions,
        port: TargetPort,
        head: EarlyExitHead | None,
        layer: int,
        native: NativeGuesser | None = None,
    ) -> None:
        """`native`: layers and head on the kernels, where they hold the target."""
        self._native = native
        self.needs = Needs(resume_layer=layer)
        self.exit_layer = layer
        self._options = options
        self._port = port
        self._head = head

    def begin(self, seqs: Seq[Sequence]) -> None:
        """Nothing to prepare: the target has read the prompt."""

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """A chain by the first layers. Every node of it, the last included, has been through them."""
        depths = [usable_depth(seq, budget) for seq, budget in zip(seqs, budgets, strict=True)]
        hidden: list[list[Tensor]] = [[] for _ in seqs]  # [D] of each node

        def feed(step: int, rows: list[int], tokens: list[int], num_open: int) -> Tensor:
            own = [seqs[i] for i in rows]
            h, logits = self._step(own, step, tokens, num_open)
            for i, row in zip(rows, h, strict=True):
                hidden[i].append(row)
            return logits

        def run(rows: list[int], own_depths: list[int], draws: list[Draw | None], least: Floors) -> Chains:
            own = [seqs[i] for i in rows]
            context = self._port.tentative(own, 0, [depth + 1 for depth in own_depths])
            pending, places = [seq.pending for seq in own], [len(seq.tokens) - 1 for seq in own]
            assert self._native is not None
            found = self._native.chain(
                pending, places, context, own_depths, draws, feed_last=True, states=True, floors=least
            )
            assert found.states is not None
            for i, depth, states in zip(rows, own_depths, found.states, strict=True):
                hidden[i] = list(states[: depth + 1])
            return found

        drafts = grow_chains_natively(
            seqs,
            depths,
            run if self._native is not None else None,
            feed,
            sample=self._options.sample,
            confidence_threshold=self._options.confidence_threshold,
            budgets=budgets,
            feed_last=True,
        )
        return [
            replace(draft, resume=Resume(layer=self.exit_layer, hidden=torch.stack(rows[: draft.num_nodes])))
            if rows
            else draft
            for draft, rows in zip(drafts, hidden, strict=True)
        ]

    def _step(self, seqs: Seq[Sequence], step: int, tokens: list[int], num_open: int) -> tuple[Tensor, Tensor]:
        """One token of each sequence: states [n, D] at the exit, logits [num_open, V] of the first `num_open`."""
        context = self._port.tentative(seqs, step, [1] * len(seqs))
        places = [len(seq.tokens) - 1 + step for seq in seqs]
        if self._native is not None:
            h, logits = self._native.feed(tokens, places, context, range(len(tokens)))
            return h, logits[:num_open]
        h = self._port.run(torch.tensor(tokens), torch.tensor(places), context, stop=self.exit_layer)
        if num_open == 0:
            return h, h
        first = h[:num_open]
        return h, self._port.logits(first if self._head is None else self._head(first))

    def observe(self, seen: Seq[Seen]) -> None:
        """Nothing to learn."""

    def end(self, seqs: Seq[Sequence]) -> None:
        """Nothing to drop."""


def build(options: EarlyExitOptions, port: TargetPort) -> EarlyExitDrafter:
    """Load the exit head, if one is named, and check that it fits the target."""
    head, native = None, None
    layer = options.exit_layer or max(1, port.num_layers // 4)
    if options.model:
        head = load_exit_head(resolve(options.model), port.dtype, port.device)
        layer = options.exit_layer or head.config.exit_layer
        if head.config.hidden_size != port.hidden_size:
            raise CapabilityError(
                f"exit head {options.model!r} is {head.config.hidden_size} wide, the target {port.hidden_size}: "
                "a head belongs to the target it was trained with"
            )
    if layer >= port.num_layers:
        raise CapabilityError(
            f"exit_layer={layer} leaves nothing to verify with: the target has {port.num_layers} layers; choose fewer"
        )
    if isinstance(port.native, NativeDecoder):
        native = pack_guesser(port.native, head, layer)
    elif head is not None:
        make_exact(head)
    return EarlyExitDrafter(options, port, head, layer, native)

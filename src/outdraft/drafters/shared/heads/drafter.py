"""A drafter made of heads on the target's last state: a head a token of a chain, or a level of a tree.

What a head says may depend on the tokens guessed before its own, or not: then it runs once a round, and its guess is
the same on all paths, whose probabilities are the products of their heads'. Data in: sequences, and the target's last
states; data out: chains or trees, as deep as there are heads.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from outdraft.core.draft import Draft
from outdraft.core.drafter import Drafter, Traits
from outdraft.core.method import DrafterMethod, Paper
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.core.weights import Weights
from outdraft.drafters.shared.blocks.grow import grow_slots
from outdraft.drafters.shared.heads.config import HeadOptions
from outdraft.drafters.shared.heads.files import Formats, Net, read_any
from outdraft.drafters.shared.heads.joint import require_taught
from outdraft.drafters.shared.heads.layers import GuessSlots
from outdraft.drafters.shared.heads.net import HeadNet
from outdraft.drafters.shared.heads.states import states_of
from outdraft.drafters.shared.learning.vocab import whole_logits
from outdraft.drafters.shared.networks.prepare import prepare
from outdraft.drafters.shared.state_drafter import StateDrafter, chosen_model
from outdraft.drafters.shared.state_options import StateOptions
from outdraft.drafters.shared.trees.template import read_template
from outdraft.models.networks.port import TargetPort
from outdraft.options.paths import user_path


class HeadDrafter(StateDrafter):
    """One head a step or level, over all sequences that still want one."""

    def __init__(self, options: HeadOptions, net: HeadNet, port: TargetPort, weights: Weights, home: Path) -> None:
        self._states = states_of(net, port)
        super().__init__(self._states, (net.config.tap,), Traits(weights=(weights,), home=home, shape=options.drafts))
        self._options, self._net, self._port = options, net, port
        self._template = None if options.tree is None else read_template(user_path(options.tree)).paths

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        depths = [min(self._net.config.num_heads, depth) for depth in self.depths(seqs, budgets)]

        def say(step: int, own: Seq[Sequence], paths: Seq[Seq[int]]) -> Tensor:
            return self._say(own, [[seq.pending, *path] for seq, path in zip(own, paths, strict=True)])

        return grow_slots(self._options, seqs, depths, budgets, say, self._template)

    def _say(self, seqs: Seq[Sequence], paths: Seq[list[int]]) -> Tensor:
        """Logits [n, V] behind paths of one length, each of which begins at its text's pending token."""
        net, head = self._net, len(paths[0]) - 1
        if net.reads_tokens:
            states = net.states(self._states.of(seqs), head, embedded_paths(self._port, seqs, paths))
            return self._logits(states, head)
        first = {seq.id: row for row, seq in reversed(list(enumerate(seqs)))}
        rows = sorted(first.values())  # one of each text
        said = self._logits(net.states(self._states.of(seqs)[rows], head), head)
        return said[[rows.index(first[seq.id]) for seq in seqs]]

    def _logits(self, states: Tensor, head: int) -> Tensor:
        return whole_logits(self._net.logits(states, head), self._net.vocab, self._port.facts.vocab_size)


def embedded_paths(port: TargetPort, seqs: Seq[Sequence], paths: Seq[list[int]]) -> Seq[Tensor]:
    """The target's embeddings of paths of one length, each of which begins at its text's pending token: [n, D] each."""
    length = len(paths[0])
    places = [[seq.position(len(seq.tokens) - 1) + i for i in range(length)] for seq in seqs]
    embeds = port.layers.embed(torch.tensor(paths).flatten(), torch.tensor(places).flatten())
    return embeds.view(len(seqs), length, -1).unbind(1)


def open_heads(
    kind: type[Net], model: str | None, quantization: str, port: TargetPort, formats: Formats = (), also: Seq[str] = ()
) -> tuple[Net, Weights]:
    """The heads that the options name, ready to draft. Raises `CapabilityError` for those of another target."""
    place = chosen_model(model, kind.kind, also=also)
    require_taught(place, port)
    net = read_any(kind, formats, place, port, port.facts.dtype)
    net.borrow(port, port.facts.dtype)
    weights = prepare(net, port, quantization)
    for part in net.modules():
        if isinstance(part, GuessSlots):
            part.exact = True
    return net, weights


def head_method(
    kind: type[HeadNet],
    *,
    summary: str,
    paper: Paper,
    formats: Formats = (),
    also: Seq[str] = (),
    options: type[StateOptions] = HeadOptions,
    drafter: Callable[[Any, Any, TargetPort, Weights, Path], Drafter] = HeadDrafter,
) -> DrafterMethod[Any, TargetPort, Drafter]:
    """The registration of a method whose network is `kind`; the rest is as in `open_heads`."""

    def build(chosen: StateOptions, port: TargetPort) -> Drafter:
        home, native = chosen_model(chosen.model, kind.kind, also=also), port.layers.native
        net, weights = open_heads(kind, str(home), chosen.quantization, port, formats, also)
        return drafter(chosen.fitted(None if native is None else native.kernels), net, port, weights, home)

    return DrafterMethod(
        name=kind.kind,
        summary=summary,
        paper=paper,
        options=options,
        shape_of=lambda chosen: chosen.drafts,
        build=build,
        forms={"chain": {"width": 1}, "tree": {"width": 4}},
    )

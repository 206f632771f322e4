"""The target drafts with a fixed set of its sublayers left out, over its own cache.

Zhang et al., "Draft & verify: lossless large language model acceleration via self-speculative decoding", 2023,
https://arxiv.org/abs/2309.08168. Which sublayers is found once, offline (`tune.py`). Data in: sequences; data out:
chains with the distributions they were drawn from (none at temperature 0). No state of its own.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

from outdraft.core.draft import Draft
from outdraft.core.drafter import Seen, Traits
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.core.skip import Skip
from outdraft.core.target import Needs
from outdraft.drafters.shared.draw_options import DrawOptions
from outdraft.drafters.shared.networks.draft_network import target_network
from outdraft.drafters.shared.own_layers.own_chain import grow_own_chains
from outdraft.drafters.shared.own_layers.skip_sets import alternating, load_skip
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import ConfigError
from outdraft.options.paths import user_path

_UNTUNED = 0.45  # of the inner sublayers, where no set is named


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftVerifyOptions(DrawOptions):
    """Which sublayers are left out. Raises `ConfigError` naming what is out of range."""

    skip: str = ""  # a file that `outdraft tune-skip` wrote, which names the sublayers to leave out
    # without a file: the layers, counted from 0, whose attention is left out; with neither, every second layer is
    skip_attention: tuple[int, ...] | None = None
    # without a file: the layers, counted from 0, whose feed-forward part is left out; with neither, every second
    # layer is
    skip_mlp: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        DrawOptions.__post_init__(self)
        if self.skip and (self.skip_attention is not None or self.skip_mlp is not None):
            raise ConfigError(f"skip={self.skip!r} and layer numbers are given: leave one out")


class DraftVerifyDrafter:
    """The same sublayers for every sequence and round."""

    needs = Needs(layer_subset=True)
    traits = Traits()

    def __init__(self, options: DraftVerifyOptions, port: TargetPort, skip: Skip) -> None:
        self.skip = skip
        self._options = options
        self._port = port
        self._network = target_network(port)

    def begin(self, seqs: Seq[Sequence]) -> None:
        """Nothing to prepare: the target has read the prompt."""

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """A chain by what is left of the target."""
        skips = [self.skip] * len(seqs)
        return grow_own_chains(seqs, budgets, self._network, self._port.rows.tentative, self._options, skips)

    def observe(self, seen: Seq[Seen]) -> None:
        """What a pass showed is not needed: nothing is learned."""

    def end(self, seqs: Seq[Sequence]) -> None:
        """No state is kept for a sequence, so nothing is dropped."""


def build(options: DraftVerifyOptions, port: TargetPort) -> DraftVerifyDrafter:
    """Read the skip set and check that it is this target's."""
    if options.skip:
        skip = load_skip(user_path(options.skip), port.facts.num_layers)
    elif options.skip_attention is None and options.skip_mlp is None:
        skip = alternating(port.facts.num_layers, _UNTUNED)
    else:
        skip = Skip(frozenset(options.skip_attention or ()), frozenset(options.skip_mlp or ()))
        skip.check(port.facts.num_layers, "skip_attention or skip_mlp")
    return DraftVerifyDrafter(options, port, skip)


def describe(drafter: DraftVerifyDrafter) -> Mapping[str, Any]:
    """The layers that came of the options."""
    return {"skip_attention": sorted(drafter.skip.attention), "skip_mlp": sorted(drafter.skip.mlp)}

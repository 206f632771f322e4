"""The target drafts with a fixed set of its sublayers left out, over its own cache.

Zhang et al., "Draft & verify: lossless large language model acceleration via self-speculative decoding", 2023,
https://arxiv.org/abs/2309.08168. Which sublayers is found once, offline (`tune.py`). Data in: sequences; data out:
chains with the laws they were drawn from (none at temperature 0). No state of its own.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outdraft.core.draft import Draft
from outdraft.core.drafter import Seen
from outdraft.core.errors import ConfigError
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.core.skip import Skip
from outdraft.core.target import Needs, TargetPort
from outdraft.drafters.shared.draft_network import target_network
from outdraft.drafters.shared.own_chain import OwnChainOptions, grow_own_chains
from outdraft.drafters.shared.skip_sets import alternating, load_skip

_UNTUNED = 0.45  # of the inner sublayers, where no set is named


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftVerifyOptions(OwnChainOptions):
    """Which sublayers are left out. Raises `ConfigError` naming what is out of range."""

    skip: str = ""  # a file written by `outdraft tune-skip`
    skip_attention: tuple[int, ...] | None = None  # the layers by number instead; with neither: every second layer
    skip_mlp: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        OwnChainOptions.__post_init__(self)
        if self.skip and (self.skip_attention is not None or self.skip_mlp is not None):
            raise ConfigError(f"skip={self.skip!r} and layer numbers are given: leave one out")


class DraftVerifyDrafter:
    """The same sublayers for every sequence and round."""

    needs = Needs()

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
        return grow_own_chains(seqs, budgets, self._network, self._port.tentative, self._options, skips)

    def observe(self, seen: Seq[Seen]) -> None:
        """Nothing to learn."""

    def end(self, seqs: Seq[Sequence]) -> None:
        """Nothing to drop."""


def build(options: DraftVerifyOptions, port: TargetPort) -> DraftVerifyDrafter:
    """Read the skip set and check that it is this target's."""
    if options.skip:
        skip = load_skip(Path(options.skip).expanduser(), port.num_layers)
    elif options.skip_attention is None and options.skip_mlp is None:
        skip = alternating(port.num_layers, _UNTUNED)
    else:
        skip = Skip(frozenset(options.skip_attention or ()), frozenset(options.skip_mlp or ()))
        skip.check(port.num_layers, "skip_attention or skip_mlp")
    return DraftVerifyDrafter(options, port, skip)


def describe(drafter: DraftVerifyDrafter) -> Mapping[str, Any]:
    """The layers that came of the options."""
    return {"skip_attention": sorted(drafter.skip.attention), "skip_mlp": sorted(drafter.skip.mlp)}

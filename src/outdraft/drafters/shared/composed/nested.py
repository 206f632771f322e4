"""A drafter made of drafters: cascades, merged trees, routing. The inner ones are named as users name any drafter.

    {"method": "draft_model", "model": "path"}      or only "ngram"

Data in: such a description and the door to the target; data out: the drafter that it names, and its method. A composed
drafter calls the inner one's four verbs; it imports none of its siblings. Several of one target need what all need.

Two that asked the same coins of the same place would draw alike, and no rule may take such siblings for independent
ones, so each draws in a lane of its own. Under the coupled rule they shall draw alike, and do: there the noise belongs
to the position.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from outdraft.core.coins import DraftCoins
from outdraft.core.drafter import Drafter
from outdraft.core.registry import AnyDrafter, find, make_options
from outdraft.core.sequence import Sequence
from outdraft.core.target import Needs, after_attention
from outdraft.drafters.shared.renewing import build_drafter
from outdraft.models.networks.port import TargetPort
from outdraft.options.base import NESTED, DraftShape
from outdraft.options.errors import CapabilityError, ConfigError
from outdraft.sampling.noise import fold


def build_nested(described: str | Mapping[str, Any], port: TargetPort) -> tuple[Drafter, AnyDrafter]:
    """Build the drafter that `described` names. Raises `ConfigError` naming what is wrong with the description.

    Raises `CapabilityError` for one that works beside the pass: the engine gives that time to its own drafter alone.
    """
    method, options = _read(described)
    drafter = build_drafter(method, options, port)
    if drafter.traits.ahead is not None:
        raise CapabilityError(
            f"drafter {method.name!r} works beside the target's pass, which it cannot inside another one: name it alone"
        )
    return drafter, method


def shape_of_nested(described: Seq[str | Mapping[str, Any]]) -> DraftShape:
    """What a drafter proposes that hands on the guesses of these."""
    shapes = {method.shape_of(options) for method, options in map(_read, described)}
    return "tree" if "tree" in shapes else "chain" if "chain" in shapes else "nothing"


def _read(described: str | Mapping[str, Any]) -> tuple[AnyDrafter, Any]:
    """The method and its options."""
    if isinstance(described, str):
        described = {NESTED: described}
    if NESTED not in described:
        raise ConfigError(f"{dict(described)!r} names no {NESTED!r}; for example {{{NESTED!r}: 'ngram'}}")
    method = find("drafter", described[NESTED])
    return method, make_options(method, {key: value for key, value in described.items() if key != NESTED})


def joined_needs(drafters: Seq[Drafter], names: Seq[str]) -> Needs:
    """What several drafters of one target need. Raises `CapabilityError` where one would blind another."""
    all_needs = [drafter.needs for drafter in drafters]
    made = Needs(
        taps=tuple(sorted({tap for needs in all_needs for tap in needs.taps})),
        prompt_taps=tuple(sorted({tap for needs in all_needs for tap in needs.prompt_taps})),
        resume_layer=max(needs.resume_layer for needs in all_needs),
        layer_subset=any(needs.layer_subset for needs in all_needs),
    )
    for name, needs in zip(names, all_needs, strict=True):
        low = [tap for tap in needs.taps if (after_attention(tap) if tap < 0 else tap) < made.resume_layer]
        if low:
            raise CapabilityError(
                f"drafter {name!r} taps layer {low[0]}, and another one restarts the target behind layer "
                f"{made.resume_layer}, so it would not see that: leave one of the two out of 'drafters'"
            )
    return made


@dataclass(frozen=True, slots=True)
class _LaneCoins:
    inner: DraftCoins
    lane: int

    def draw(self, distribution: Tensor, depth: int, ordinal: int, count: int = 1) -> list[int]:
        """The same question, under an ordinal of this lane."""
        return self.inner.draw(distribution, depth, fold(self.lane, ordinal), count)

    def in_round(self, position: int) -> "_LaneCoins":
        """This lane of the inner coins of that round."""
        return replace(self, inner=self.inner.in_round(position))


def in_lane(seq: Sequence, lane: int) -> Sequence:
    """The sequence as the drafter of this lane sees it: the same tokens, other coins. Lane 0 is the sequence itself."""
    if lane == 0:
        return seq
    return replace(seq, draft_coins=lambda inner: _LaneCoins(seq.draft_coins(inner), lane))

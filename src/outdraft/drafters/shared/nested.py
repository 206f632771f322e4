"""A drafter made of drafters: cascades, merged trees, routing. The inner ones are named as users name any drafter.

    {"method": "draft_model", "model": "path"}      or only "ngram"

Data in: such a description and the door to the target; data out: the drafter that it names, and its method. A composed
drafter calls the inner one's four verbs; it imports none of its siblings. Several of one target need what all need.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from typing import Any

from outdraft.core.drafter import Drafter
from outdraft.core.errors import CapabilityError, ConfigError
from outdraft.core.registry import Method, find, make_options
from outdraft.core.target import Needs, TargetPort, after_attention


def build_nested(described: str | Mapping[str, Any], port: TargetPort) -> tuple[Drafter, Method]:
    """Build the drafter that `described` names. Raises `ConfigError` naming what is wrong with the description.

    Raises `CapabilityError` for one that works beside the pass: the engine gives that time to its own drafter alone.
    """
    if isinstance(described, str):
        described = {"method": described}
    if "method" not in described:
        raise ConfigError(f"{dict(described)!r} names no 'method'; for example {{'method': 'ngram'}}")
    method = find("drafter", described["method"])
    options = {key: value for key, value in described.items() if key != "method"}
    drafter: Drafter = method.build(make_options(method, options), port)
    if hasattr(drafter, "ahead"):
        raise CapabilityError(
            f"drafter {method.name!r} works beside the target's pass, which it cannot inside another one: name it alone"
        )
    return drafter, method


def joined_needs(drafters: Seq[Drafter], names: Seq[str]) -> Needs:
    """What several drafters of one target need. Raises `CapabilityError` where one would blind another."""
    all_needs = [drafter.needs for drafter in drafters]
    made = Needs(
        taps=tuple(sorted({tap for needs in all_needs for tap in needs.taps})),
        prompt_taps=tuple(sorted({tap for needs in all_needs for tap in needs.prompt_taps})),
        resume_layer=max(needs.resume_layer for needs in all_needs),
    )
    for name, needs in zip(names, all_needs, strict=True):
        low = [tap for tap in needs.taps if (after_attention(tap) if tap < 0 else tap) < made.resume_layer]
        if low:
            raise CapabilityError(
                f"drafter {name!r} taps layer {low[0]}, and another one restarts the target behind layer "
                f"{made.resume_layer}, so it would not see that: leave one of the two out of 'drafters'"
            )
    return made

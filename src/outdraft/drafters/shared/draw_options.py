"""Options of all drafters with a network: how tokens are chosen, and when a branch ends.

Mixins: a class of options takes them up beside what else it has, and may bring defaults of its own.
"""

from dataclasses import dataclass
from typing import get_args

from outdraft.drafters.shared.choose import Sample
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import check_range


@dataclass(frozen=True, kw_only=True)
class SampleOptions:
    """How tokens are chosen. Raises `ConfigError` naming what is out of range."""

    __slots__ = ()  # of the class that takes this up

    sample: Sample = "match"  # "match" draws tokens as the request does; "greedy" always takes the most probable one

    def __post_init__(self) -> None:
        if self.sample not in get_args(Sample):
            raise ConfigError(
                f"sample={self.sample!r}: it is 'match' (draw as the request does), 'greedy' (always the argmax), or "
                "'auto' (draw as the request does, unless its rule accepts more of the likeliest tokens)"
            )


@dataclass(frozen=True, kw_only=True)
class DrawOptions(SampleOptions):
    """How tokens are drawn, and the probability below which a branch ends."""

    __slots__ = ()

    # a drafted token less probable than this is kept, but its branch ends there; 0 never ends one
    confidence_threshold: float = 0.0

    def __post_init__(self) -> None:
        SampleOptions.__post_init__(self)
        check_range(self, "confidence_threshold", least=0, most=1)

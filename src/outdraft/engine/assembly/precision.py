"""Elastic precision: choose the precision of the next request by measured free memory, with hysteresis.

    level        target                          draft model
    full         as it is stored                 as its own options say
    draft-int4   as it is stored                 on 4 bits: the same text, fewer guesses right
    mixed        4 bits in the middle layers     as one level above: another distribution, and results name it

                          min_free         + margin
    free memory  ---------|----------------|-------------
                 one down       stay         one up, if that much stays free with the larger weights in

Sizes are measured when a level is held. Going down needs none; the level above was held before, since every engine
begins at the top. So a change of level does not by itself ask for the next one, and noise below the margin for none.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from outdraft.engine.assembly.memory import Memory, read_memory
from outdraft.options.errors import ConfigError

FULL, DRAFT_INT4, MIXED = "full", "draft-int4", "mixed"
ELASTIC = "elastic"  # whichever fits
PRECISIONS = (FULL, DRAFT_INT4, MIXED, ELASTIC)


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticOptions:
    """Shares of all memory. Raises `ConfigError` naming what is out of range."""

    min_free: float = 0.1  # with less than this free, go down
    margin: float = 0.05  # go up again only if this much more would stay free

    def __post_init__(self) -> None:
        for name, value in (("min_free", self.min_free), ("margin", self.margin)):
            if not 0 < value < 1:
                raise ConfigError(f"precision option {name}={value!r} is out of range: a share of all memory, 0 to 1")


class Ladder:
    """`levels` from most to least memory; begins at the first. `read` says what is free."""

    def __init__(
        self, levels: tuple[str, ...], options: ElasticOptions, read: Callable[[], Memory] = read_memory
    ) -> None:
        self.levels = levels
        self.level = levels[0]
        self.read = read
        self._options = options
        self._sizes: dict[str, int] = {}

    def describe(self) -> dict[str, Any]:
        """As plain data: all levels, and when one is left."""
        return {"levels": list(self.levels), **asdict(self._options)}

    def hold(self, level: str, num_bytes: int) -> None:
        """The weights of this level are in memory now, and the others' are not."""
        self.level = level
        self._sizes[level] = num_bytes

    def choose(self) -> str:
        """The level for the next request: the one that is held, or its neighbour."""
        at = self.levels.index(self.level)
        memory = self.read()
        least = self._options.min_free * memory.total
        if memory.free < least:
            return self.levels[min(at + 1, len(self.levels) - 1)]
        if at > 0:
            growth = self._sizes[self.levels[at - 1]] - self._sizes[self.level]
            if memory.free - growth >= least + self._options.margin * memory.total:
                return self.levels[at - 1]
        return self.level

"""When a level of precision is left: below `min_free` down, with `margin` more than that up, and between them never."""

import pytest

from outdraft.engine.assembly.memory import Memory
from outdraft.engine.assembly.precision import ElasticOptions, Ladder

SIZES = {"full": 300, "draft-int4": 250, "mixed": 120}


def chosen(held: str, free: int) -> str:
    """The next level where `held` is in memory, after all above it were; 1000 bytes, of which `free` are free."""
    ladder = Ladder(tuple(SIZES), ElasticOptions(min_free=0.1, margin=0.05), lambda: Memory(free=free, total=1000))
    for level in SIZES:
        ladder.hold(level, SIZES[level])
        if level == held:
            break
    return ladder.choose()


@pytest.mark.parametrize(
    ("held", "free", "wanted"),
    [
        ("full", 100, "full"),
        ("full", 99, "draft-int4"),
        ("draft-int4", 99, "mixed"),
        ("mixed", 99, "mixed"),
        ("full", 1000, "full"),
        ("draft-int4", 199, "draft-int4"),  # the level above would leave 149
        ("draft-int4", 200, "full"),
        ("mixed", 279, "mixed"),
        ("mixed", 280, "draft-int4"),
    ],
)
def test_the_edges(held, free, wanted):
    assert chosen(held, free) == wanted

"""A seeded sample of strange values: `python -m outdraft.testing.strange` tries 5,000 of them."""

from random import Random

from outdraft.testing.sweep.run import sweep


def test_strange_values_are_taken_or_refused():
    numbers = sorted(Random(10).sample(range(5000), 150))
    verdicts = sweep("outdraft.testing.strange.cases", iter(numbers))
    bad = [f"{one.end}: {one.name}: {one.said}" for one in verdicts if not one.is_good]
    assert not bad, "\n".join(bad)

"""Every place crossed with the strange values: case n is place n, round after round, with a value drawn by seed and n.

So every argument is tried before any is tried again. Half of the values are numbers: most arguments are, and limits
of size show with them alone.
"""

from collections.abc import Callable
from pathlib import Path
from random import Random

from outdraft.testing.strange.command_places import command_places
from outdraft.testing.strange.engine_places import engine_places
from outdraft.testing.strange.option_places import option_places
from outdraft.testing.strange.stage import Stage
from outdraft.testing.strange.tool_places import tool_places
from outdraft.testing.strange.values import strange_values
from outdraft.testing.sweep.case import Case


def load(directory: Path, seed: int) -> Callable[[int], Case]:
    """The case of a number: which argument, and which value."""
    stage = Stage(directory)
    places = [*engine_places(stage), *option_places(stage), *tool_places(stage), *command_places(stage)]
    Random(seed).shuffle(places)

    def case_of(number: int) -> Case:
        place, dice = places[number % len(places)], Random(f"{seed} {number}")
        values = strange_values()
        numbers = [one for one in values if isinstance(one.value, int | float)]
        strange = dice.choice(numbers if dice.random() < 0.5 else values)
        return Case(name=f"{place.name} = {strange.name:.80}", run=lambda: place.use(strange.value))

    return case_of

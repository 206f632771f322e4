"""Arguments crossed with strange values: case n is argument n, round after round, with a value drawn by seed and n.

So every argument is tried before any is tried again. Half of the values are numbers: most arguments are, and limits
of size show with them alone.
"""

from collections.abc import Callable
from pathlib import Path
from random import Random

from lab.strange.command_arguments import command_arguments
from lab.strange.engine_arguments import engine_arguments
from lab.strange.option_arguments import option_arguments
from lab.strange.stage import Stage
from lab.strange.tool_arguments import tool_arguments
from lab.strange.values import strange_values
from lab.sweep.case import Case


def load(directory: Path, seed: int) -> Callable[[int], Case]:
    """The case of a number: which argument, and which value."""
    stage = Stage(directory)
    arguments = [*engine_arguments(stage), *option_arguments(stage), *tool_arguments(stage), *command_arguments(stage)]
    Random(seed).shuffle(arguments)

    def case_of(number: int) -> Case:
        argument, dice = arguments[number % len(arguments)], Random(f"{seed} {number}")
        values = strange_values()
        numbers = [one for one in values if isinstance(one.value, int | float)]
        strange = dice.choice(numbers if dice.random() < 0.5 else values)
        return Case(name=f"{argument.name} = {strange.name:.80}", run=lambda: argument.use(strange.value))

    return case_of

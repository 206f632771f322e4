"""What some drafters cannot do without on the zoo's target, and the zoo does not have."""

from pathlib import Path
from typing import Any

from outdraft import zoo
from outdraft.core.learner_registry import find_learner, learner_names
from outdraft.core.registry import find
from outdraft.models.files.load import load_model


def untrained_heads(directory: Path) -> dict[str, dict[str, Any]]:
    """Drafter -> options that name heads which have learned nothing yet."""
    options = {}
    for name in learner_names():
        method, drafter = find_learner(name), find("drafter", name)
        if drafter.options().model is None:
            method.new(method.options(), load_model(zoo.path("target")), 0).save(directory / name)
            options[name] = {"model": str(directory / name)}
    return options

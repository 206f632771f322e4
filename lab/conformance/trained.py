"""A recipe on the zoo's own target with the head that was trained for it, where the zoo has one.

A head that was taught to guess a tiny target learns that target by heart, and then every kind of head guesses alike. On
the zoo's target each guesses as well as it has learned. Data in: a recipe; data out: a row, or nothing.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from outdraft import zoo
from outdraft.engine.naming.recipe import Recipe
from outdraft.engine.naming.roles import choose, fill, read_companions, slots_of
from outdraft.models.files.load import load_model
from outdraft.models.networks.base import Decoder
from outdraft.testing.spec_table import DrafterRow

TARGET, ROLE = "target", "head"


def trained_row(recipe: Recipe) -> DrafterRow | None:
    """The row of a recipe whose role "head" the zoo fills; None: it has no such role, or no head ships."""
    options, name = recipe.drafter.options, recipe.drafter.name
    heads = [slot for slot in slots_of(name, options) if slot.role == ROLE]
    if not heads or {slot.role for slot in slots_of(name, options)} != {ROLE} or TARGET not in zoo.names():
        return None
    companions = read_companions(zoo.path(TARGET))
    places = [choose(slot, {}, companions) for slot in heads]
    if None in places:
        return None
    filled, _ = fill(recipe.name, name, options, {}, lambda: companions)

    def side(target: Decoder, directory: Path) -> Mapping[str, Any]:
        return filled

    return DrafterRow(drafter=name, label=recipe.name, side=side, target=trained_target)


def trained_target(vocab_size: int, dtype: torch.dtype) -> Decoder:
    """The zoo's target in this precision; its vocabulary is its own."""
    return load_model(zoo.path(TARGET), dtype)

"""A cascade of two models and the look-up, of one model, and of one over bigrams that were counted beforehand."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contracts.sides import datastore, smaller_model, twin

from outdraft.models.networks.base import Decoder
from outdraft.testing.spec_table import DrafterRow


def two_models(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """One that is mostly right, and a smaller one."""
    large, small = twin(target, directory), smaller_model(target, directory)
    return {"models": (large["model"], small["model"]), "lengths": ((2, 2, 4), (0, 1, 3), (0, 0, 3))}


def one_model(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """The one that is mostly right."""
    return {"models": (twin(target, directory)["model"],), "lengths": ((4, 3), (0, 3))}


def over_a_corpus(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """One model, and the target's own texts to count on."""
    return {**one_model(target, directory), **datastore(target, directory)}


ROWS = [
    DrafterRow(drafter="cascade", side=one_model, remembers=True),
    DrafterRow(drafter="cascade", label="two", side=two_models, options={"leniency": 5.0}, remembers=True),
    DrafterRow(drafter="cascade", label="corpus", side=over_a_corpus, remembers=True),
]

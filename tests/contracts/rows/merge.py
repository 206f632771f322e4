"""Several drafters, one tree: a table and a model, and two models that draw."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contracts.sides import smaller_model, twin

from outdraft.models.networks.base import Decoder
from outdraft.testing.spec_table import DrafterRow


def two_models(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """A tree of a model that is mostly right, a chain of another, and a look-up."""
    right, other = twin(target, directory), smaller_model(target, directory)
    return {
        "drafters": (
            {"method": "draft_model", "expansion": (2, 1), **right},
            {"method": "draft_model", **other},
            "ngram",
        )
    }


def model_and_table(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """Deterministic guesses share their nodes."""
    return {"drafters": ({"method": "draft_model", "sample": "greedy", **twin(target, directory)}, "ngram")}


ROWS = [
    DrafterRow(drafter="merge", side=two_models),
    DrafterRow(drafter="merge", label="certain", side=model_and_table),
]

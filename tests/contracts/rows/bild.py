"""A small model that hands over when it is unsure; the recipes too, since distributions over random logits are flat."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contracts.sides import twin

from outdraft.models.base import Decoder
from outdraft.testing.spec_table import DrafterRow


def flat_twin(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """Mostly right, seldom sure."""
    return {**twin(target, directory), "fallback_threshold": 0.25}


ROWS = [DrafterRow(drafter="bild", side=flat_twin)]

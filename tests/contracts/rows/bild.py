"""A small model that hands over when it is unsure; the recipes too, since distributions over random logits are flat."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contracts.sides import twin

from outdraft.models.networks.base import Decoder
from outdraft.testing.spec_table import DrafterRow


def flat_twin(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """Mostly right, seldom sure."""
    return {**twin(target, directory), "fallback_threshold": 0.25}


def bold_twin(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """Mostly right, and hardly ever unsure, so that some of its guesses are wrong."""
    return {**twin(target, directory), "fallback_threshold": 0.15}


def distant_twin(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """Often far off, so that the target takes some of it back: what a close twin says is never that improbable."""
    return {**twin(target, directory, noise=0.4), "fallback_threshold": 0.1}


ROWS = [DrafterRow(drafter="bild", side=flat_twin)]
GROUNDS = [
    DrafterRow(drafter="bild", label="bild", side=distant_twin),
    DrafterRow(drafter="bild", label="bild_exact", side=bold_twin),
]

"""Two levels, the small one a twin of the target; the recipe's budgets would hold all of a short text."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contracts.sides import twin

from outdraft.models.networks.base import Decoder
from outdraft.testing.spec_table import DrafterRow


def nested_twin(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """The twin as the small drafter."""
    return {"draft": {"method": "draft_model", **twin(target, directory)}}


def narrow_twin(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """The twin remembers few rows."""
    return {"draft": {"method": "draft_model", **twin(target, directory), "sinks": 1, "window": 6}}


_FEW = {"budget": 6, "chunk": 2, "refresh": 4}
ROWS = [DrafterRow(drafter="triforce", side=nested_twin, options=_FEW)]
GROUNDS = [DrafterRow(drafter="triforce", label="triforce", side=narrow_twin, options=_FEW)]

"""Two levels, the small one a twin of the target."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contracts.sides import twin

from outdraft.models.base import Decoder
from outdraft.testing.spec_table import DrafterRow


def nested_twin(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """The twin as the small drafter."""
    return {"draft": {"method": "draft_model", **twin(target, directory)}}


ROWS = [DrafterRow(drafter="triforce", side=nested_twin, options={"budget": 6, "chunk": 2, "refresh": 4})]

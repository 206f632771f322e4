"""The target's own weights on few bits."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outdraft.models.base import Decoder
from outdraft.models.load import save_model
from outdraft.testing.spec_table import DrafterRow


def stored(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """The tiny target as files."""
    save_model(target, directory / "target")
    return {"weights": str(directory / "target")}


ROWS = [DrafterRow(drafter="quantized_self", side=stored, options={"bits": 8})]

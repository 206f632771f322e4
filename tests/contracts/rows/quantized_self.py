"""The target's own weights on few bits, over exact rows and over upper halves."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outdraft.models.files.load import save_model
from outdraft.models.networks.base import Decoder
from outdraft.testing.spec_table import DrafterRow


def stored(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """The tiny target as files."""
    save_model(target, directory / "target")
    return {"weights": str(directory / "target")}


ROWS = [
    DrafterRow(drafter="quantized_self", side=stored, options={"bits": 8}),
    DrafterRow(drafter="quantized_self", label="kv_bits", side=stored, options={"bits": 8, "kv_bits": 4, "buffer": 16}),
]
# the recipe's buffer of 128 exact rows would hold all of a short text
GROUNDS = [DrafterRow(drafter="quantized_self", label="quantspec", side=stored, options={"buffer": 16})]

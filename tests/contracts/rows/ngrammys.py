"""N-Grammys: the target's own tables and the text."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outdraft.models.networks.base import Decoder
from outdraft.testing.spec_table import DrafterRow


def beside(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """Tables are kept in the test's own directory."""
    return {"cache_dir": str(directory)}


ROWS = [DrafterRow(drafter="ngrammys", side=beside, options={"rows": 4})]
# the recipe's ten rows would be every token of a vocabulary of seven
GROUNDS = [DrafterRow(drafter="ngrammys", label="ngrammys", side=beside, options={"rows": 4})]

"""A draft model beside look-up. The suite asks the first arm alone; tests/drafters/test_several.py asks all."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contracts.sides import twin

from outdraft.models.networks.base import Decoder
from outdraft.testing.spec_table import DrafterRow


def twin_and_ngram(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """A draft model that is mostly right, then look-up."""
    return {"drafters": [{"method": "draft_model", **twin(target, directory)}, "ngram"]}


ROWS = [DrafterRow(drafter="several", side=twin_and_ngram)]

"""The table: `rows/<drafter>.py` holds the rows of a drafter (some have several shapes to prove).

Adding a drafter is a file in `src/outdraft/drafters`, a page in `docs/methods`, and a file of rows. A method without
rows fails.

`GROUNDS` in such a file are rows for the matrix of recipes: on them the drafter is mostly right. Those of a learned
drafter have trained weights, and slow tests ask the contract of them too. `LEARNING` says
with which options a learner is tried beside its defaults.
"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from outdraft.core.learner_registry import learner_names
from outdraft.testing.spec_table import DrafterRow

FILES = sorted(path.stem for path in (Path(__file__).parent / "rows").glob("*.py"))
MODULES = [import_module(f"contracts.rows.{file}") for file in FILES]
ROWS: list[DrafterRow] = [row for module in MODULES for row in module.ROWS]
FIRST = {row.drafter: row.name for row in reversed(ROWS)}  # of each drafter; its other shapes are mostly slow tests
GROUNDS: list[DrafterRow] = [row for module in MODULES for row in getattr(module, "GROUNDS", ())]
TAUGHT = [row for row in GROUNDS if row.drafter in learner_names()]


def learning(drafter: str) -> Mapping[str, Mapping[str, Any]]:
    """What its learner is tried with beside its defaults: a label, and the options."""
    return getattr(dict(zip(FILES, MODULES, strict=True))[drafter], "LEARNING", {})


def quick(row: DrafterRow) -> tuple[pytest.MarkDecorator, ...]:
    """Marks of a test that is asked of the first row of each drafter in `make test`, and of the others where slow ones
    run."""
    return () if FIRST[row.drafter] == row.name else (pytest.mark.slow,)

"""The table: `rows/<drafter>.py` holds the rows of a drafter (some have several shapes to prove).

Adding a drafter is a file in `src/outdraft/drafters`, a page in `docs/methods`, and a file of rows. A method without
rows fails.
"""

from importlib import import_module
from pathlib import Path

from outdraft.testing.spec_table import DrafterRow

FILES = sorted(path.stem for path in (Path(__file__).parent / "rows").glob("*.py"))
ROWS: list[DrafterRow] = [row for file in FILES for row in import_module(f"contracts.rows.{file}").ROWS]

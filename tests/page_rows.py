"""The rows of a page's tables, for tests that walk them."""

import re
from pathlib import Path

FILES_OF_OTHERS = Path(__file__).parents[1] / "docs/files_of_others.md"


def rows_of(page: Path, heading: str) -> list[tuple[str, ...]]:
    """The rows of the tables under `## heading`, as cells without their backticks; the heads of tables left out."""
    section = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page.read_text(), re.DOTALL | re.MULTILINE)
    assert section, f"{page.name} has no heading {heading!r}"
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", section[1], re.MULTILINE):
        for line in table.splitlines()[2:]:
            cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
            found.append(tuple(cell.strip().replace("`", "").replace(r"\|", "|") for cell in cells))
    return found

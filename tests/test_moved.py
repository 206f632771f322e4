"""docs/moved.md: every old module is gone, and every new one is there."""

import re
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/moved.md").read_text(encoding="utf-8")
MOVED = re.findall(r"^\| `([a-z_.0-9]+)` \| `([a-z_.0-9]+)` \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("before, now", [pair for pair in MOVED if pair[0].startswith("outdraft.")])
def test_a_module_is_where_the_page_says(before: str, now: str) -> None:
    with suppress(ModuleNotFoundError):  # of a package above it
        assert find_spec(before) is None
    found = find_spec(now)
    assert found is not None and found.origin is not None and Path(found.origin).is_relative_to(ROOT)


def test_the_page_is_in_the_book() -> None:
    assert len(MOVED) > 15
    assert "moved.md" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")

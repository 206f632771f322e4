"""docs/moved.md: every old module is gone, and every new one is there."""

import re
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/moved.md").read_text(encoding="utf-8")
MOVED = re.findall(r"^\| `([a-z_.0-9]+)` \| `([a-z_.0-9]+)` \|$", PAGE, re.MULTILINE)

CLASS = r"`(outdraft\.[a-z_.0-9]+\.[A-Z]\w+)`"
RENAMED = re.findall(rf"^\| {CLASS} \| {CLASS} \|$", PAGE, re.MULTILINE)


def test_modules_are_where_the_page_says() -> None:
    wrong = [pair for pair in MOVED if pair[0].startswith("outdraft.") and (exists(pair[0]) or not exists(pair[1]))]
    assert not wrong, "old modules that are still there, or new ones that are not:\n" + "\n".join(map(str, wrong))


def test_classes_are_called_what_the_page_says() -> None:
    assert len(RENAMED) > 20
    wrong = []
    for old, new in RENAMED:
        own = old.rpartition(".")[0].replace(".", "/") + ".py"
        text = (ROOT / "src" / own).read_text(encoding="utf-8")
        is_there = [bool(re.search(rf"^class {name.rpartition('.')[2]}\b", text, re.MULTILINE)) for name in (old, new)]
        wrong += [] if is_there == [False, True] else [(old, new)]
    assert not wrong, "old classes that are still there, or new ones that are not:\n" + "\n".join(map(str, wrong))


def exists(module: str) -> bool:
    """Whether a module of this checkout has the name."""
    with suppress(ModuleNotFoundError):  # of a package above it
        found = find_spec(module)
        return found is not None and found.origin is not None and Path(found.origin).is_relative_to(ROOT)
    return False


def test_the_page_is_in_the_book() -> None:
    assert len(MOVED) > 15
    assert "moved.md" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")

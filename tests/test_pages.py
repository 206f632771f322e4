"""Pages lead somewhere: every relative link of a page exists, and every page is in the menu of the site.

`make docs` checks the same for the site, and needs mkdocs; these tests need nothing.
"""

import re
from pathlib import Path

import pytest

from outdraft.engine.assembly import foreign

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(#[^)\s]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_of_a_page_lead_somewhere(page: Path):
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
    for path, anchor in LINK.findall(text):
        found = (page.parent / path) if path else page
        assert found.exists(), f"{page.relative_to(ROOT)} links to {path}, which is not there"
        if anchor and found.suffix == ".md":
            assert anchor.lower() in anchors(found), (
                f"{page.relative_to(ROOT)} links to {path}{anchor}: no such heading"
            )


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as the site and code hosts make them."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        found.add("#" + re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-"))
    return found


def test_every_page_is_in_the_menu_of_the_site():
    menu = (ROOT / "mkdocs.yml").read_text()
    menu = menu[menu.index("\nnav:") :]
    listed = set(re.findall(r"([\w/]+\.md)", menu))
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    pages = {page for page in pages if not page.startswith("methods/")}  # docs/_site/hooks.py lists these
    assert listed == pages


def test_every_word_of_other_engines_is_on_the_page():
    page = (ROOT / "docs/coming_from.md").read_text()
    for table in (foreign.NOTED, foreign.REFUSED, foreign.CONFIG_NOTED, foreign.CONFIG_REFUSED, foreign.OFF_ONLY):
        for word, said in table.items():
            assert f"| `{word}` | {said} |" in page, f"docs/coming_from.md does not say what becomes of {word}"

"""Pages lead somewhere: every relative link of a page exists, and every page is in the menu of the site.

`make docs` checks the same for the site, and needs mkdocs; these tests need nothing.
"""

import re
import shlex
from pathlib import Path

import pytest

from outdraft.cli.main import make_parser
from outdraft.engine.naming import foreign

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


def test_every_page_is_on_the_first_page():
    first = ROOT / "docs/index.md"
    linked = {path for path, _ in LINK.findall(first.read_text())}
    pages = {page.name for page in first.parent.glob("*.md")} - {first.name}
    assert pages <= linked, f"docs/index.md does not name {', '.join(sorted(pages - linked))}"


def test_every_word_of_other_engines_is_on_the_page():
    page = (ROOT / "docs/coming_from.md").read_text()
    keys = (foreign.NOTED, foreign.CURES, foreign.CONFIG_NOTED, foreign.CONFIG_CURES)
    for table in (*keys, foreign.METHODS):
        for word, said in table.items():
            assert f"| `{word}` | {said} |" in page, f"docs/coming_from.md does not say what becomes of {word}"


def cells(row: str) -> int:
    """How many cells a table's row has, where code hosts see them: a bar ends a cell also in code, unless escaped."""
    return len(re.findall(r"(?<!\\)\|", row.strip())) - 1


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_row_of_a_table_loses_a_cell(page: Path):
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for table in re.findall(r"(?:^\|.*\n)+", text + "\n", re.MULTILINE):
        head, *rows = table.splitlines()
        for row in rows:
            assert cells(row) == cells(head), (
                f"{page.relative_to(ROOT)}: {row[:80]} has {cells(row)} cells, not {cells(head)}"
            )


def test_cells_are_counted_as_they_are_shown():
    assert cells("| a | b |") == 2 and cells(r"| a | `x|y` |") == 3 and cells(r"| a | x\|y |") == 2


FENCED = re.compile(r"^( *)```(?:bash|sh|console|text)?\n(.*?)^ *```", re.DOTALL | re.MULTILINE)


def commands(page: Path) -> list[str]:
    """Command lines of `outdraft` in a page's blocks: comments, prompts, pipes and continued lines taken care of."""
    found = []
    for _, block in FENCED.findall(page.read_text()):
        for line in block.replace("\\\n", " ").splitlines():
            words = re.match(r"\s*(?:\$ )?(?:\.venv/bin/)?(outdraft .*)", line)
            if words and "|" not in words[1].split("#")[0]:
                found.append(words[1])
    return found


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.stem)
def test_commands_of_a_page_are_understood(page: Path, capsys: pytest.CaptureFixture[str]):
    """Every flag is one, and what stands without a flag is what the command takes there: `generate` a prompt."""
    parser = make_parser()
    for line in commands(page):
        line = re.split(r"   +|  \(| [<>] ", line.replace("--method ...", ""))[0]  # what follows is said of the line
        words = [word for word in shlex.split(line, comments=True)[1:] if word not in ("...", "[...]")]
        try:
            given, unknown = parser.parse_known_args(words)
        except SystemExit as left:
            assert left.code == 0, f"{page.name}: {line}: {capsys.readouterr().err}"
            continue
        assert not unknown, f"{page.name}: {line}: {unknown[0]} is not known"
        prompt = getattr(given, "prompt", None) or ""
        assert given.command != "generate" or not re.fullmatch(r"MODEL|DIR.*|zoo:.*", prompt), f"{page.name}: {line}"

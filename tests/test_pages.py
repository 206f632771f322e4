"""Pages lead somewhere: every relative link of a page exists, and every page is in the menu of the site.

`make docs` checks the same for the site, and needs mkdocs; these tests need nothing.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from outdraft.cli.main import make_parser
from outdraft.engine.naming import foreign

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(#[^)\s]*)?\)")


def test_links_lead_somewhere():
    assert len(PAGES) > 100
    dead = [f"{page.relative_to(ROOT)} links to {link}" for page in PAGES for link in dead_links(page)]
    assert not dead, "\n".join(dead)


def dead_links(page: Path) -> Iterator[str]:
    """The links of a page that lead to no file or no heading, and why."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
    for path, anchor in LINK.findall(text):
        found = (page.parent / path) if path else page
        if not found.exists():
            yield f"{path}, which is not there"
        elif anchor and found.suffix == ".md" and anchor.lower() not in anchors(found):
            yield f"{path}{anchor}: no such heading"


def test_links_out_of_docs_are_shown_as_paths_on_the_site():
    shown = re.search(r"\(\?:([a-z|]+)\)", (ROOT / "docs/_site/hooks.py").read_text())
    assert shown is not None
    for page in (ROOT / "docs").rglob("*.md"):
        rooms = {
            path.rpartition("../")[2].partition("/")[0]
            for path, _ in LINK.findall(page.read_text())
            if is_out(page, path)
        }
        assert rooms <= set(shown[1].split("|")), page


def is_out(page: Path, path: str) -> bool:
    return bool(path) and not (page.parent / path).resolve().is_relative_to(ROOT / "docs")


def test_what_the_site_documents_is_found():
    """`paths` of mkdocs.yml, where the modules lie that pages name behind `:::`."""
    listed = re.search(r"paths: \[(.*)\]", (ROOT / "mkdocs.yml").read_text())
    assert listed is not None
    roots = [ROOT / one.strip() for one in listed[1].split(",")]
    named = {
        name for page in (ROOT / "docs").rglob("*.md") for name in re.findall(r"^::: (\S+)", page.read_text(), re.M)
    }
    for name in named:
        # a module, or what stands in one
        paths = [name.replace(".", "/"), name.rpartition(".")[0].replace(".", "/")]
        assert any(
            (root / (path + end)).exists() for root in roots for path in paths for end in (".py", "/__init__.py")
        ), name
    assert len(named) > 5


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


def test_no_row_of_a_table_loses_a_cell():
    found = [f"{page.relative_to(ROOT)}: {what}" for page in PAGES for what in uneven_rows(page.read_text())]
    assert not found, "\n".join(found)


def uneven_rows(page: str) -> Iterator[str]:
    """Rows of tables that have other cells than their heads."""
    text = re.sub(r"^ *```.*?^ *```", "", page, flags=re.DOTALL | re.MULTILINE)
    for table in re.findall(r"(?:^\|.*\n)+", text + "\n", re.MULTILINE):
        head, *rows = table.splitlines()
        for row in rows:
            if cells(row) != cells(head):
                yield f"{row[:80]} has {cells(row)} cells, not {cells(head)}"


def test_dead_links_and_uneven_rows_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One\n[a](page.md#one) [b](page.md#two) [c](none.md) [d](#one) `[e](no.md)`\n")
    assert list(dead_links(page)) == ["page.md#two: no such heading", "none.md, which is not there"]
    assert list(uneven_rows("| a | b |\n|---|---|\n| c |\n| d | e |\n")) == ["| c | has 1 cells, not 2"]


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


def test_commands_of_pages_are_understood(capsys: pytest.CaptureFixture[str]):
    """Every flag is one, and what stands without a flag is what the command takes there: `generate` a prompt."""
    parser, found = make_parser(), []
    asked = [(page.name, line) for page in PAGES for line in commands(page)]
    assert len(asked) > 100
    for page, told in asked:
        line = re.split(r"   +|  \(| [<>] ", told.replace("--method ...", ""))[0]  # what follows is said of the line
        words = [word for word in shlex.split(line, comments=True)[1:] if word not in ("...", "[...]")]
        try:
            given, unknown = parser.parse_known_args(words)
        except SystemExit as left:
            if left.code:
                found.append(f"{page}: {line}: {capsys.readouterr().err}")
            continue
        if unknown:
            found.append(f"{page}: {line}: {unknown[0]} is not known")
        prompt = getattr(given, "prompt", None) or ""
        if given.command == "generate" and re.fullmatch(r"MODEL|DIR.*|zoo:.*", prompt):
            found.append(f"{page}: {line}: {prompt} stands where the prompt does")
    assert not found, "\n".join(found)

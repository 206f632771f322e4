"""Plain English: words that this field does not use for what is meant stand nowhere where a user may read them.

Readers say *distribution*, not law; *layer*, not floor or cellar. Searched are pages, help texts and messages: all of
the source, because that is where help texts and messages are written.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORDS = re.compile(r"\b(laws?|floors?|cellars?)\b", re.IGNORECASE)
KINDS = ("*.md", "*.py", "*.toml", "*.cpp", "*.h", "*.yml", "*.cff")
PLACES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CITATION.cff", "mkdocs.yml", "pyproject.toml")
WRITTEN = ROOT / "docs/zoo_samples.md"  # by a model
FOLDERS = ("docs", "src", "examples", "recipes", ".github")
ALLOWED = {  # what may stand there, and why
    r"\bmath\.floor\(": "the function of Python's library",
    r"\bfrom math import .*\bfloor\b": "the same, imported",
    r"\bfloor\(": "the same, called; or the greatest integer of a formula",
}


def hits(text: str) -> list[str]:
    """Lines with such a word that no entry of `ALLOWED` explains."""
    found = []
    for line in text.splitlines():
        rest = line
        for pattern in ALLOWED:
            rest = re.sub(pattern, "", rest)
        if WORDS.search(rest):
            found.append(line.strip())
    return found


def test_the_fields_own_words_are_used():
    pages = [ROOT / name for name in PLACES]
    pages += [path for folder in FOLDERS for kind in KINDS for path in (ROOT / folder).rglob(kind)]
    pages.remove(WRITTEN)
    assert len(pages) > 700
    found = [f"{page.relative_to(ROOT)}: {line}" for page in pages for line in hits(page.read_text(encoding="utf-8"))]
    assert not found, "\n".join(found)


def test_every_exception_is_needed():
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    for pattern in ALLOWED:
        assert re.search(pattern, source), f"{pattern} stands nowhere: take it off the list"


def test_the_search_finds_what_it_looks_for():
    assert hits("two laws of x\nfollow the flow\nfloor(x) of the Floor\n") == ["two laws of x", "floor(x) of the Floor"]
    assert hits("low = math.floor(low)\nfrom math import floor, isfinite\nlawn, flooring\n") == []

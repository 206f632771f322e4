"""Plain English: words that this field does not use for what is meant stand nowhere where a reader meets them.

Readers say *distribution*, not law; *layer*, not floor or cellar. These are searched in all text, help texts and
messages among it. The subject of a sentence is a noun of the glossary (request, drafter, client), and what is printed,
given or normed is called so: pages, docstrings, comments and names of tests do without words for nobody in particular.
"""

import io
import re
import tokenize
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORDS = re.compile(r"\b(laws?|floors?|cellars?)\b", re.IGNORECASE)
VAGUE = re.compile(r"(?<![A-Za-z])(whoever|nobody|somebody|told)(?![A-Za-z])(?! apart)", re.IGNORECASE)
KINDS = ("*.md", "*.py", "*.toml", "*.cpp", "*.h", "*.yml", "*.cff")
PLACES = (
    "README.md",
    "README.zh.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CITATION.cff",
    "mkdocs.yml",
    "pyproject.toml",
)
FOLDERS = ("docs", "src", "examples", "lab", "tests", ".github")
CODE = re.compile(r'`[^`\n]+`|"\w+":')  # names of arguments, and keys
TEST = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)
COMMENT = re.compile(r"//.*")
BESIDE = (tokenize.COMMENT, tokenize.NL, tokenize.DEDENT)  # tokens that may stand between a statement and its docstring
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


def prose(source: str) -> list[str]:
    """Comments and docstrings of a Python file, a line each, and the names of its tests."""
    found, before = TEST.findall(source), tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_docstring = token.type == tokenize.STRING and before in (tokenize.NEWLINE, tokenize.INDENT)
        if token.type == tokenize.COMMENT or is_docstring:
            found += token.string.splitlines()
        if token.type not in BESIDE:
            before = token.type
    return found


def vague(name: str, text: str) -> list[str]:
    """Lines of prose with a word for anybody in particular; what stands in backticks is code."""
    if not VAGUE.search(text):
        return []
    if name.endswith(".py"):
        lines = prose(text)
    else:
        lines = COMMENT.findall(text) if name.endswith((".cpp", ".h")) else text.splitlines()
    return [line.strip() for line in lines if VAGUE.search(CODE.sub("", line))]


def found_by(search: Callable[[str, str], list[str]]) -> list[str]:
    """What a search of (name, text) finds in all that is written here by hand, this file apart."""
    pages = [ROOT / name for name in PLACES]
    pages += [path for folder in FOLDERS for kind in KINDS for path in (ROOT / folder).rglob(kind)]
    pages.remove(Path(__file__))
    assert len(pages) > 1500
    texts = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in pages}
    return [f"{name}: {line}" for name, text in texts.items() for line in search(name, text)]


def test_the_fields_own_words_are_used():
    found = found_by(lambda name, text: hits(text))
    assert not found, "\n".join(found)


def test_sentences_have_a_subject_of_the_glossary():
    found = found_by(vague)
    assert not found, "\n".join(found)


def test_every_exception_is_needed():
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    for pattern in ALLOWED:
        assert re.search(pattern, source), f"{pattern} stands nowhere: take it off the list"


def test_the_search_finds_what_it_looks_for():
    assert hits("two laws of x\nfollow the flow\nfloor(x) of the Floor\n") == ["two laws of x", "floor(x) of the Floor"]
    assert hits("low = math.floor(low)\nfrom math import floor, isfinite\nlawn, flooring\n") == []


def test_vague_words_are_found_in_prose_and_not_in_code():
    body = 'def test_nobody_is_left():\n    """Somebody is told."""\n    told = ["nobody"]  # Whoever\n'
    assert vague("a.py", body) == ["test_nobody_is_left", '"""Somebody is told."""', "# Whoever"]
    assert (
        vague("a.py", '"""Two that are told apart: `told` of them."""\n\ntold = "told"\nx = {\n    "told": 1}\n') == []
    )
    assert vague("a.md", "Nobody does.\nA key `told`.\n") == ["Nobody does."]
    assert vague("a.cpp", "int told = 1;  // nobody's\n") == ["// nobody's"]

"""What the fenced blocks of pages ask a reader to paste: the lines of shells, and Python programs.

    page --> [Paste]    one for each program, and for each line of a shell: continued ones joined, loops whole

In a block of no language only lines that begin with a program of ours are pasted: the rest is what was printed.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/methods").glob("*.md"))]
FENCED = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
OURS = re.compile(r"(?:nice -n 19 )?(?:\.venv/bin/)?(?:outdraft|python3?|make|curl) ")
SHELLS = ("bash", "sh", "console")


@dataclass(frozen=True, slots=True, kw_only=True)
class Paste:
    """One line, or one program, as it is printed; `is_python` says which."""

    page: str
    text: str
    is_python: bool = False


def pastes(page: Path) -> Iterator[Paste]:
    """All of a page, in its order."""
    name = page.relative_to(ROOT).as_posix()
    for _, language, block in FENCED.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            yield Paste(page=name, text=block, is_python=True)
        elif language in (*SHELLS, "text", ""):
            for line in _lines(block):
                line = line.removeprefix("$ ")
                if OURS.match(line) or (language in SHELLS[:2] and line):
                    yield Paste(page=name, text=line)


def _lines(block: str) -> Iterator[str]:
    """What a shell takes as one: until no quote, no loop and no backslash is open; comments left out."""
    whole = ""
    for line in block.splitlines():
        whole = f"{whole}\n{line}".strip()
        if whole.endswith("\\"):
            whole = whole[:-1].rstrip() + " "
        elif not _is_open(whole):
            if not whole.startswith("#"):
                yield whole
            whole = ""
    if whole:
        yield whole


def _is_open(text: str) -> bool:
    try:
        words = shlex.split(text, comments=True)
    except ValueError:
        return True
    return words[:1] == ["for"] and "done" not in words

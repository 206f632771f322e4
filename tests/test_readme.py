"""The README's table of methods is the catalogue. `python tests/test_readme.py` rewrites it."""

from pathlib import Path

from outdraft.core.registry import KINDS, find, names

README = Path(__file__).parents[1] / "README.md"
START, END = "<!-- methods: kept equal to the catalogue by tests/test_readme.py -->\n", "<!-- /methods -->"


def table() -> str:
    """Markdown: one row a method."""
    lines = ["| kind | name | what it does | paper |", "| --- | --- | --- | --- |"]
    for kind in KINDS:
        for name in names(kind):
            method = find(kind, name)
            shown = (
                f"[{name}](docs/methods/{name}.md)" if (README.parent / f"docs/methods/{name}.md").exists() else name
            )
            paper = f"[{method.paper.year}]({method.paper.link})" if method.paper else ""
            lossy = "" if method.lossless else " (lossy)"
            lines.append(f"| {kind} | {shown} | {method.summary}{lossy} | {paper} |")
    return "\n".join(lines) + "\n"


def test_table_is_the_catalogue():
    text = README.read_text()
    held = text[text.index(START) + len(START) : text.index(END)]
    assert held == table(), "run: python tests/test_readme.py"


if __name__ == "__main__":
    text = README.read_text()
    README.write_text(text[: text.index(START) + len(START)] + table() + text[text.index(END) :])

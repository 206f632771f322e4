"""The loop, the engine, the trainer and what drafters share know no method: none imports one or says its name in code.

Docstrings and comments may: they tell a reader what an option is for. A method that is called like an ordinary word
(`block`, `greedy`) is looked for in imports only.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from outdraft.core.registry import KINDS, names

SOURCE = Path(__file__).parents[1] / "src/outdraft"
FILES = sorted(
    path for part in ("decode", "engine", "drafters/shared", "training") for path in (SOURCE / part).rglob("*.py")
)
CATALOGUE = {name for kind in KINDS for name in names(kind)}
ORDINARY = {
    "none",
    "auto",
    "fixed",
    "block",
    "greedy",
    "coupled",
    "sequential",
    "rejection",
    "several",
    "rest",
    "suffix",
}
SAID_ON_PURPOSE = {  # where a user's word happens to be a method's, and why
    "engine/naming/words.py": {"draft_model"},  # an argument of `LLM`, spelled as elsewhere
    "engine/naming/foreign.py": {"draft_model"},  # the same, as a cure
    "engine/naming/roles.py": {"draft_model"},  # the same, as a recipe's role
    "engine/llm.py": {"draft_model"},  # the same
    "drafters/shared/blocks/kind.py": {"dflash"},  # what files of block drafts call a projector without more
    "drafters/shared/composed/nested.py": {"ngram"},  # the example that an error gives
    "drafters/shared/networks/load_draft.py": {"vocab_map", "universal"},  # the cure that an error gives
}


def code_words(tree: ast.AST) -> set[str]:
    """Identifiers, and the words of strings that are not docstrings."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    words: set[str] = set()
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name", "module"):
            value = getattr(node, field, None)
            words |= set(value.split(".")) if isinstance(value, str) else set()
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            words |= set(re.findall(r"\w+", node.value))
    return words


def imported(tree: ast.AST) -> set[str]:
    """Modules, and what is taken from them, as dotted names."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_no_method_is_named():
    assert len(FILES) > 100
    found = [f"{path.relative_to(SOURCE)} {what}" for path in FILES for what in betrayals(path)]
    assert not found, "the loop must not know who drafts:\n" + "\n".join(found)


def betrayals(path: Path) -> Iterator[str]:
    """How a file names a method."""
    tree = ast.parse(path.read_text())
    allowed = SAID_ON_PURPOSE.get(path.relative_to(SOURCE).as_posix(), set())
    said = code_words(tree) & (CATALOGUE - ORDINARY) - allowed
    if said:
        yield f"says {sorted(said)}"
    homes = tuple(f"{package}." for package in KINDS.values())
    taken = {one for one in imported(tree) if one.startswith(homes) and ".shared" not in one}
    if taken:
        yield f"imports {sorted(taken)}"


def test_the_look_out_works():
    tree = ast.parse('"""ngram in a docstring"""\nfrom outdraft.verify.block import judge\nx = f("an ngram, say")\n')
    assert "ngram" in code_words(tree) and "docstring" not in code_words(tree)
    assert imported(tree) == {"outdraft.verify.block.judge"}
    assert "lookahead" in code_words(ast.parse("drafter.lookahead = 3"))

"""Documents that repeat themselves. Look-up drafting lives on repetition, and small models learn to copy late.

    a passage                     def area(w, h): ...
    Copy:                         (blank lines)
    the same passage              def surface(w, h): ...     the same function after a renaming

Data in: training documents. Data out: short texts, made with a fixed seed.
"""

import ast
import random
import re
from collections.abc import Iterator, Sequence

_REQUESTS = ("Copy:", "Repeat the text:", "The same again:", "Write it once more:", "Copy the passage above:")
_WORD = re.compile(r"\b[a-z][a-z_]{3,}\b")
_NEW_NAMES = (
    "value", "item", "result", "index", "count", "total", "name", "path", "line", "text", "node", "left", "right",
    "buffer", "current", "data", "source", "target", "entry", "record", "limit", "width", "start", "chunk", "token",
)  # fmt: skip


def make_copies(prose: Sequence[str], code: Sequence[str], count: int, seed: int) -> Iterator[str]:
    """`count` self-repeating documents; a third of them are code after a renaming."""
    rng = random.Random(seed)
    functions = [f for text in code for f in _functions(text)]
    for i in range(count):
        if i % 3 == 0 and functions:
            yield _renamed(rng.choice(functions), rng)
        else:
            yield _repeated(rng.choice(prose if i % 3 == 1 or not code else code), rng)


def _repeated(text: str, rng: random.Random) -> str:
    """A passage of 80 to 700 characters cut at line or word ends, an instruction, the passage again."""
    size = int(80 * (700 / 80) ** rng.random())
    start = rng.randrange(max(1, len(text) - size))
    start = max(text.rfind("\n", 0, start), text.rfind(". ", 0, start) + 1, 0) if start else 0
    passage = text[start : start + size].strip()
    end = max(passage.rfind(" "), passage.rfind("\n"))
    passage = passage[:end].rstrip() if end > 40 else passage
    times = 2 if rng.random() < 0.2 and size < 250 else 1
    request = rng.choice(_REQUESTS)
    return passage + f"\n\n{request}\n\n{passage}" * times + "\n"


def _renamed(function: str, rng: random.Random) -> str:
    """A function, then itself with one to three names changed throughout."""
    words = sorted({w for w in _WORD.findall(function) if w not in _KEYWORDS})
    changed = function
    for old in rng.sample(words, min(len(words), rng.randint(1, 3))):
        changed = re.sub(rf"\b{old}\b", rng.choice(_NEW_NAMES), changed)
    return f"{function}\n\n\n{changed}\n"


def _functions(text: str) -> Iterator[str]:
    """Top-level functions of a module that are 100 to 900 characters long."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            source = ast.get_source_segment(text, node) or ""
            if 100 <= len(source) <= 900:
                yield source


_KEYWORDS = frozenset(
    """False None True class from import while with yield return raise pass else elif except finally lambda nonlocal
    global assert async await break continue self print range""".split()  # noqa: SIM905  a list would take 27 lines
)

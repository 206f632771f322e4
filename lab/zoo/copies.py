"""Documents that repeat themselves. Look-up drafting needs repetition, and small models learn late to copy.

    a passage                     def area(w, h): ...
    Copy:                         (blank lines)
    the same passage              def surface(w, h): ...     the same function after a renaming

A quarter are passages whose words were shuffled first: what comes next can be known from the copy alone, so that the
model must learn to look back (Olsson et al. 2022, https://arxiv.org/abs/2209.11895).
Data in: training documents. Data out: short texts, made with a fixed seed.
"""

import ast
import random
import re
from collections.abc import Iterator, Sequence

_REQUESTS = ("Copy:", "Repeat the text:", "The same again:", "Write it once more:", "Copy the passage above:")
_WORD = re.compile(r"\b[a-z][a-z_]{3,}\b")
_NEW_NAMES = (
    "value",
    "item",
    "result",
    "index",
    "count",
    "total",
    "name",
    "path",
    "line",
    "text",
    "node",
    "left",
    "right",
    "buffer",
    "current",
    "data",
    "source",
    "target",
    "entry",
    "record",
    "limit",
    "width",
    "start",
    "chunk",
    "token",
)


def make_copies(prose: Sequence[str], code: Sequence[str], count: int, seed: int) -> Iterator[str]:
    """`count` self-repeating documents: renamed code, prose, code, shuffled words, in turn."""
    rng = random.Random(seed)
    functions = [f for text in code for f in _functions(text)]
    for i in range(count):
        kind = i % 4
        if kind == 0 and functions:
            yield _renamed(rng.choice(functions), rng)
        else:
            texts = code if code and (kind == 2 or i % 8 == 3) else prose
            yield _repeated(rng.choice(texts), rng, shuffled=kind == 3)


def _repeated(text: str, rng: random.Random, *, shuffled: bool) -> str:
    """A passage of 60 to 500 characters cut at line or word ends, an instruction, the passage again."""
    size = int(60 * (500 / 60) ** rng.random())
    start = rng.randrange(max(1, len(text) - size))
    start = max(text.rfind("\n", 0, start), text.rfind(". ", 0, start) + 1, 0) if start else 0
    passage = text[start : start + size].strip()
    end = max(passage.rfind(" "), passage.rfind("\n"))
    passage = passage[:end].rstrip() if end > 30 else passage
    if shuffled:
        words = passage.split()
        rng.shuffle(words)
        passage = " ".join(words)
    times = 2 if rng.random() < 0.3 and size < 200 else 1
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
    global assert async await break continue self print range""".split()
)

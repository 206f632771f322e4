"""Prompts without a data file: real Python and real English from the standard library's source, and texts that repeat.

The same machine gives the same prompts. Data out: strings, or random ids for a model without a tokenizer.
"""

import importlib.util
import random
import re
from collections.abc import Iterator
from itertools import chain, cycle, islice
from pathlib import Path

from outdraft.codecs.codec import TextualCodec

_MODULES = """
argparse ast calendar csv datetime difflib doctest email.message fractions heapq inspect json.decoder logging
pathlib pickle random shlex statistics string tarfile textwrap threading typing unittest.mock
""".split()

PROSE = (
    "The old man looked at the sea for a long time, and then he said",
    "It was late in the evening when the letter came. She opened it and",
    "There are three things that a good teacher must know. The first is",
)
CODE = (
    'def read_lines(path):\n    """Return the lines of a file, without their ends."""\n',
    "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n",
)
COPIES = (
    "def get_name(self):\n    return self._name\n\ndef set_name(self, name):\n    self._name = name\n\n"
    "def get_size(self):\n    return self._size\n\ndef set_size(self, size):\n    self._size = size\n\n"
    "def get_name(self):\n    return",
    "The cat sat on the mat. The dog sat on the log. The cat sat on the mat. The dog sat on the",
)


def identity_prompts(codec: TextualCodec | None, count: int, *, vocab_size: int, max_len: int) -> list[list[int]]:
    """`count` prompts as ids, of at most `max_len` tokens: hand-written ones first, then pieces of the library."""
    if codec is None:
        return random_prompts(count, vocab_size=vocab_size, max_len=max_len)
    texts = islice(chain(PROSE, CODE, COPIES, library_pieces()), count)
    return [codec.encode(text)[:max_len] for text in texts]


def distribution_prompts(codec: TextualCodec | None, *, vocab_size: int) -> list[list[int]]:
    """A few short prompts, after which each kind of drafter has something to say (two of them repeat themselves)."""
    if codec is None:
        return [ids * 2 for ids in random_prompts(3, vocab_size=vocab_size, max_len=6)]
    return [codec.encode(text) for text in (PROSE[0], CODE[1], COPIES[1])]


def random_prompts(count: int, *, vocab_size: int, max_len: int) -> list[list[int]]:
    """Random ids; every second prompt repeats itself."""
    rng = random.Random(count)
    made = [[rng.randrange(vocab_size) for _ in range(rng.randint(2, max(2, max_len // 2)))] for _ in range(count)]
    return [(ids * 2)[:max_len] if i % 2 else ids[:max_len] for i, ids in enumerate(made)]


def library_pieces() -> Iterator[str]:
    """Endless openings of functions, classes and paragraphs, one from each module in turn."""
    rng = random.Random(0)
    sources = [Path(spec.origin).read_text("utf-8") for name in _MODULES if (spec := _spec(name)) and spec.origin]
    openings = [list(re.finditer(r"\n\n(?=[ A-Za-z])", source)) for source in sources]
    for source, places in cycle(zip(sources, openings, strict=True)):
        start = rng.choice(places).end()
        yield source[start : start + rng.randint(60, 240)]


def _spec(name: str) -> "importlib.machinery.ModuleSpec | None":
    return importlib.util.find_spec(name)

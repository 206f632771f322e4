"""Where the target begins to write what is promised about: at the answers of held-out examples.

    a chat     | system, question | answer        | question | answer
                                  ^                          ^
    a text     | 32 tokens | the rest of it
                           ^
    a long one is begun again every 128 tokens, so that a few give several

Data in: a corpus. Data out: prompts, each once; the first ones of all examples come before all second ones.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from outdraft.training.corpus import Corpus

_FIRST = 32  # tokens of a text that has no prompt of its own
_APART = 128  # tokens between two beginnings in what counts


def beginnings(corpus: Corpus, longest: int) -> Iterator[tuple[int, ...]]:
    """The tokens before each place where something to be guessed begins, the last `longest` of them."""
    starts = corpus.starts.tolist()
    places = [_places(corpus.counts[a:b], longest) for a, b in pairwise(starts)]
    seen = set()
    for number in range(max(map(len, places), default=0)):
        for start, own in zip(starts[:-1], places, strict=True):
            if number < len(own):
                stop = start + own[number]
                prompt = tuple(corpus.ids[max(start, stop - longest) : stop].tolist())
                if prompt not in seen:
                    seen.add(prompt)
                    yield prompt


def _places(counts: NDArray[np.bool_], longest: int) -> list[int]:
    """In one example [n]: none is at 0, where there is no prompt, or at the end, where there is nothing to write."""
    edges = np.flatnonzero(np.diff(counts.astype(np.int8), prepend=0, append=0))  # a run begins, it ends, ...
    found: list[int] = []
    for begin, end in edges.reshape(-1, 2).tolist():
        found += range(begin or max(1, min(_FIRST, longest, end - 1)), end, _APART)
    return found

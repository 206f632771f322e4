"""The order of a text's suffixes, and what followed a span in it: the index of a text that lies in a file.

`sort_suffixes` takes linear time natively (SA-IS), and can be stopped; `look_up` is O(length log size) for the search,
and walks over at most `max_hits` places. Where the kernels are not built numpy does both, more slowly. Data in: int32
arrays, which may be memory-mapped; data out: the order, or a trie of continuations with counts.
"""

import ctypes
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from outdraft.kernels.index_types import CCorpus, CCorpusAnswer, CCorpusQuery, CSortWatch, ids
from outdraft.kernels.library import check, require_library, wanted_kind
from outdraft.options.checked import check_fields
from outdraft.options.ranges import check_range

Ids = NDArray[np.int32]
_POLL = 0.1  # seconds between looks at a running sort


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedText:
    """A text and the order of its suffixes, [N] int32 each. `end`: the token between documents, above all others."""

    tokens: Ids
    order: Ids
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusQuery:
    """What to look for: the longest end of the context, of so many tokens, and what came after it.

    Raises `ConfigError` for what is below 1.
    """

    min_match: int = 2
    max_match: int = 16
    max_hits: int = 5000  # of more places so many are taken, evenly spread over the order
    depth: int = 10  # tokens of a continuation
    max_nodes: int = 64  # of the trie: the heaviest

    def __post_init__(self) -> None:
        check_fields(self)
        check_range(self, "min_match", "max_match", "max_hits", "depth", "max_nodes", least=1)


@dataclass(frozen=True, slots=True)
class CorpusAnswer:
    """The heaviest nodes of the trie of continuations, heaviest first."""

    tokens: list[int] = field(default_factory=list)  # [n]
    parents: list[int] = field(default_factory=list)  # [n], -1 below the root
    counts: list[int] = field(default_factory=list)  # [n]
    match: int = 0  # tokens of the context that were found; 0: too few
    hits: int = 0  # places where they stand


def sort_suffixes(tokens: Ids, order: Ids, alphabet: int, tell: Callable[[float], object] = lambda share: None) -> None:
    """Write the starts of all suffixes of `tokens` [N], smallest first, into `order` [N].

    The end of the text is smaller than any token. Token ids lie in [0, alphabet). `tell` hears the share that is done.
    Beside both arrays it takes at most 2.3 N bytes. A KeyboardInterrupt stops it. Raises `RuntimeError` for an id
    outside of the alphabet, `ValueError` for arrays that the kernels cannot read.
    """
    if wanted_kind():
        _sort_natively(tokens, order, alphabet, tell)
    else:
        order[:] = sort_suffixes_reference(tokens)


def sort_suffixes_reference(tokens: Ids) -> Ids:
    """By doubling: suffixes ranked by 1, 2, 4, ... tokens, until no two ranks are equal."""
    rank = tokens.astype(np.int64)
    order = np.argsort(rank, kind="stable")
    width = 1
    while len(tokens):
        follow = np.full_like(rank, -1)
        follow[:-width] = rank[width:]
        order = np.lexsort((follow, rank))
        new = (np.diff(rank[order]) != 0) | (np.diff(follow[order]) != 0)
        rank[order] = np.concatenate([[0], np.cumsum(new)])
        if new.all():
            break
        width *= 2
    return order.astype(np.int32)


def look_up(corpus: SortedText, context: Seq[int], query: CorpusQuery) -> CorpusAnswer:
    """What followed the longest end of `context` that the corpus has.

    Raises `RuntimeError` where its order is none (a damaged file), `ValueError` for arrays that kernels cannot read.
    """
    if not wanted_kind():
        return look_up_reference(corpus, context, query)
    native = require_library()
    address, length, _held = ids(context[-query.max_match :])
    tokens, parents, counts = ((ctypes.c_int32 * query.max_nodes)() for _ in range(3))
    asked = CCorpusQuery(
        address, length, query.min_match, query.max_match, query.max_hits, query.depth, query.max_nodes
    )
    answer = CCorpusAnswer(tokens, parents, counts)
    size = len(corpus.tokens)
    whole = CCorpus(_address(corpus.tokens, size), _address(corpus.order, size), size, corpus.end)
    check(native.od_corpus_look_up(whole, asked, answer))
    n = answer.nodes
    return CorpusAnswer(tokens[:n], parents[:n], counts[:n], answer.match, answer.hits)


def look_up_reference(corpus: SortedText, context: Seq[int], query: CorpusQuery) -> CorpusAnswer:
    """The same, one match length after the other."""
    text = corpus.tokens
    for match in range(min(query.max_match, len(context)), query.min_match - 1, -1):
        span = list(context[-match:])

        def head(start: np.int32, match: int = match) -> list[int]:
            return list(map(int, text[start : start + match]))

        first, last = bisect_left(corpus.order, span, key=head), bisect_right(corpus.order, span, key=head)
        if first < last:
            count = min(last - first, query.max_hits)
            starts = [int(corpus.order[first + (last - first) * i // count]) + match for i in range(count)]
            rows = [_until_end(text[start : start + query.depth], corpus.end) for start in starts]
            return CorpusAnswer(*_heaviest(rows, query.max_nodes), match, last - first)
    return CorpusAnswer()


def _until_end(row: Ids, end: int) -> list[int]:
    ends = np.flatnonzero(row == end)
    return list(map(int, row[: ends[0]] if len(ends) else row))


def _heaviest(rows: list[list[int]], max_nodes: int) -> tuple[list[int], list[int], list[int]]:
    """Sorted rows -> tokens, parents, counts of their trie's heaviest nodes; of equal ones the one that came first."""
    tokens: list[int] = []
    parents: list[int] = []
    counts: list[int] = []
    heap: list[tuple[int, int, int, int, list[list[int]]]] = []
    born = 0

    def push(below: list[list[int]], depth: int, parent: int) -> None:
        nonlocal born
        for token, group in groupby((row for row in below if len(row) > depth), key=lambda row: row[depth]):
            members = list(group)
            heappush(heap, (-len(members), born, token, parent, members))
            born += 1

    depths = [0]
    push(rows, 0, -1)
    while heap and len(tokens) < max_nodes:
        negated, _, token, parent, members = heappop(heap)
        tokens.append(token)
        parents.append(parent)
        counts.append(-negated)
        depths.append(depths[parent + 1] + 1)
        push(members, depths[-1], len(tokens) - 1)
    return tokens, parents, counts


def _address(values: Ids, size: int) -> int:
    if values.dtype != np.int32 or values.shape != (size,) or not values.flags.c_contiguous:
        raise ValueError(f"{size} int32 in one block are needed, not {values.dtype} {values.shape} {values.strides}")
    return int(values.ctypes.data)


def _sort_natively(tokens: Ids, order: Ids, alphabet: int, tell: Callable[[float], object]) -> None:
    native = require_library()
    size = len(tokens)
    text, places = _address(tokens, size), _address(order, size)
    watch, failed = CSortWatch(), list[BaseException]()

    def work() -> None:
        try:
            check(native.od_sort_suffixes(text, size, alphabet, places, watch))
        except RuntimeError as error:
            failed.append(error)

    thread = threading.Thread(target=work, name="sort_suffixes")
    thread.start()
    try:
        running = True
        while running:
            thread.join(_POLL)
            running = thread.is_alive()
            tell(watch.share)
    finally:
        watch.stop = 1  # the arrays must live as long as the thread writes to them
        thread.join()
    if failed:
        raise failed[0]

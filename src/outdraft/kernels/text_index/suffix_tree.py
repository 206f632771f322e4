"""All spans of the texts of a queue, up to a length, with how often each occurs; and what they say may follow a text.

    extend ... close ... extend ... close      a text comes in token by token at one end
    evict                                      and leaves whole at the other: counts go down again

`make_suffix_tree` gives the native tree, or where it is not built a plain trie of dictionaries with the same answers, a
hundred times slower, and with memory for every span. Data in: token ids; data out: `TreeGuess`.
"""

import ctypes
from collections import deque
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from heapq import heappop, heappush

from outdraft.kernels.index_types import CGuessLimits, CTreeGuess, ids
from outdraft.kernels.library import check, require_library, wanted_kind

_EVERY = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class GuessLimits:
    """How much to guess after a match of L tokens: factor * L + offset nodes, each with at least this probability."""

    max_nodes: int
    max_depth: int
    factor: float = 1.0
    offset: float = 0.0
    min_prob: float = 0.1
    width: int = _EVERY  # children of a node; 1 is a chain


@dataclass(frozen=True, slots=True)
class TreeGuess:
    """Continuations, most probable first, parents before children."""

    tokens: list[int] = field(default_factory=list)  # [n]
    parents: list[int] = field(default_factory=list)  # [n], -1 below the text itself
    probs: list[float] = field(default_factory=list)  # [n] product of shares of the counts
    score: float = 0.0  # their sum: how many tokens the tree expects to be right
    match: int = 0  # tokens of the text that were found


class NativeSuffixTree:
    """Counts of all spans of at most `depth` tokens in a set of texts, the newest of which may grow.

    A compressed tree; `extend` and `evict` cost O(depth) a token.
    """

    def __init__(self, depth: int) -> None:
        self._native = native = require_library()
        self.depth = depth
        self._handle = check(native.od_suffix_tree_new(min(depth, _EVERY)))

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._native.od_suffix_tree_free(self._handle)

    @property
    def num_texts(self) -> int:
        """Texts inside, the open one included."""
        return int(self._native.od_suffix_tree_texts(self._handle))

    @property
    def num_nodes(self) -> int:
        return int(self._native.od_suffix_tree_nodes(self._handle))

    @property
    def num_bytes(self) -> int:
        return int(self._native.od_suffix_tree_bytes(self._handle))

    def extend(self, tokens: Seq[int]) -> None:
        """The newest text goes on; the first call after `close` begins one."""
        address, length, _held = ids(tokens)
        check(self._native.od_suffix_tree_extend(self._handle, address, length))

    def close(self) -> None:
        """The newest text is complete."""
        self._native.od_suffix_tree_close(self._handle)

    def evict(self) -> None:
        """The oldest text leaves. Raises `RuntimeError` if no closed one is left."""
        check(self._native.od_suffix_tree_evict(self._handle))

    def count(self, span: Seq[int]) -> int:
        """How often `span` occurs; 0 for one longer than `depth`."""
        address, length, _held = ids(span)
        return int(self._native.od_suffix_tree_count(self._handle, address, length))

    def guess(self, context: Seq[int], limits: GuessLimits) -> TreeGuess:
        """The best-scored continuation of any match of the context's end; of equal ones that of the longest match.

        Only the last `depth` tokens of the context are read.
        """
        if limits.max_nodes <= 0 or limits.max_depth <= 0:
            return TreeGuess()
        address, length, _held = ids(context[-self.depth :])
        tokens, parents = ((ctypes.c_int32 * limits.max_nodes)() for _ in range(2))
        probs = (ctypes.c_double * limits.max_nodes)()
        best = CTreeGuess(tokens, parents, probs)
        asked = CGuessLimits(
            limits.max_nodes, limits.max_depth, limits.width, limits.factor, limits.offset, limits.min_prob
        )
        check(self._native.od_suffix_tree_guess(self._handle, address, length, asked, best))
        n = best.nodes
        return TreeGuess(tokens[:n], parents[:n], probs[:n], best.score, best.match)


class _Node:
    __slots__ = ("children", "count", "ends")

    def __init__(self) -> None:
        self.count = self.ends = 0  # occurrences; those that a text, or the depth, ends
        self.children: dict[int, _Node] = {}


class SuffixTrieReference:
    """One node for every span: the same answers from a page of Python."""

    def __init__(self, depth: int) -> None:
        if depth < 1:
            raise RuntimeError(f"the depth of a suffix tree is at least 1, not {depth}")
        self.depth = depth
        self._root = _Node()
        self._texts: deque[list[int]] = deque()
        self._open = False
        self._growing: list[_Node] = []

    @property
    def num_texts(self) -> int:
        return len(self._texts)

    def extend(self, tokens: Seq[int]) -> None:
        """A node for each span that ends with the token."""
        if not self._open:
            self._texts.append([])
            self._growing, self._open = [], True
        for token in tokens:
            self._texts[-1].append(token)
            if len(self._growing) == self.depth:
                self._growing.pop(0)
            for i, node in enumerate([*self._growing, self._root]):
                node.ends -= node is not self._root
                child = node.children.setdefault(token, _Node())
                child.count += 1
                child.ends += 1
                self._growing[i : i + 1] = [child]

    def close(self) -> None:
        self._open = False

    def evict(self) -> None:
        """Each of its spans occurs once less."""
        if self.num_texts <= self._open:
            raise RuntimeError("no closed text is left to evict")
        text = self._texts.popleft()
        for start in range(len(text)):
            node = self._root
            for token in text[start : start + self.depth]:
                child = node.children[token]
                child.count -= 1
                if not child.count:
                    del node.children[token]
                node = child
            node.ends -= 1

    def count(self, span: Seq[int]) -> int:
        node = self._find(span) if 0 < len(span) <= self.depth else None
        return node.count if node else 0

    def guess(self, context: Seq[int], limits: GuessLimits) -> TreeGuess:
        """Longest match first, until a shorter one cannot score more: probabilities add up to 1 a level."""
        best = TreeGuess()
        for match in range(min(self.depth - 1, len(context)), 0, -1):
            most = min(limits.max_nodes, limits.factor * match + limits.offset)
            if min(most, limits.max_depth) <= best.score:
                break
            node = self._find(context[len(context) - match :])
            if node is not None and node.children:
                found = self._expand(node, limits, int(most), match)
                best = found if found.score > best.score else best
        return best

    def _find(self, span: Seq[int]) -> _Node | None:
        node: _Node | None = self._root
        for token in span:
            node = node.children.get(token) if node else None
        return node

    def _expand(self, start: _Node, limits: GuessLimits, most: int, match: int) -> TreeGuess:
        tokens: list[int] = []
        parents: list[int] = []
        probs: list[float] = []
        heap: list[tuple[float, int, int, int, int, _Node]] = []  # -prob, age, token, parent, depth
        born = 0

        def push(node: _Node, prob: float, parent: int, depth: int) -> None:
            nonlocal born
            whole = node.count - node.ends
            ranked = sorted(node.children.items(), key=lambda item: (-item[1].count, item[0]))
            if node is self._root or depth > limits.max_depth:
                return
            for token, child in ranked[: limits.width]:
                share = prob * (child.count / whole)
                if share >= limits.min_prob:
                    heappush(heap, (-share, born, token, parent, depth, child))
                    born += 1

        push(start, 1.0, -1, 1)
        while heap and len(tokens) < most:
            negated, _, token, parent, depth, child = heappop(heap)
            tokens.append(token)
            parents.append(parent)
            probs.append(-negated)
            push(child, -negated, len(tokens) - 1, depth + 1)
        score = 0.0
        for prob in probs:
            score += prob
        return TreeGuess(tokens, parents, probs, score, match)


SuffixTree = NativeSuffixTree | SuffixTrieReference


def make_suffix_tree(depth: int) -> SuffixTree:
    """Native, where it is built; for one thread at a time. Raises `RuntimeError` for a depth below 1."""
    return NativeSuffixTree(depth) if wanted_kind() else SuffixTrieReference(depth)

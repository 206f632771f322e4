"""Which pages hold which text: a tree of published pages, so that a later text with the same beginning takes them over.

    root of a salt -- page 3 "Once upon a ..." -- page 0 "time there was ..." -- page 7
                                               \\- page 5 "hill lived an ..."

A page is found by its parent and its own 16 tokens, so all tokens up to its end are compared and nothing but equal text
is ever found. A published page that no sequence has any more is *kept*; where room is wanted the least recently used
one goes first, and its descendants before it. Kwon et al., "Efficient memory management for large language model
serving with PagedAttention", 2023, https://arxiv.org/abs/2309.06180; Zheng et al., "SGLang", 2023,
https://arxiv.org/abs/2312.07104 (a tree of prefixes).

Data in: salts, tokens and numbers of pages; data out: numbers of pages. The rows themselves are the cache's.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from outdraft.cache.page_events import PageEvents
from outdraft.core.cache import PAGE

Key = tuple[int | None, Hashable, tuple[int, ...]]  # the page before, or the salt of a text that begins; its tokens


@dataclass(slots=True)
class _Node:
    """A published page in the tree of texts: texts with the same beginning share the pages of it."""

    key: Key
    num_children: int = 0

    @property
    def before(self) -> int | None:
        """The page before it; None for the first of a text."""
        return self.key[0]


@dataclass(slots=True)
class PrefixTree:
    """Published pages, found by text; and those of them that no text has, in the order in which they will go."""

    _pages: dict[Key, int] = field(default_factory=dict)
    _nodes: dict[int, _Node] = field(default_factory=dict)
    _kept: OrderedDict[int, None] = field(default_factory=OrderedDict)
    _events: PageEvents | None = None  # who hears of it

    @property
    def num_kept(self) -> int:
        """Pages that no text has, and that are there for a later text."""
        return len(self._kept)

    @property
    def kept(self) -> list[int]:
        """Those pages, the next to go first."""
        return list(self._kept)

    def holds(self, page: int) -> bool:
        return page in self._nodes

    def find(self, salt: Hashable, tokens: Seq[int]) -> Iterator[int]:
        """The pages of the longest published beginning of this text, in order."""
        before: int | None = None
        for start in range(0, len(tokens) - PAGE + 1, PAGE):
            page = self._pages.get(_key(salt, before, tokens[start : start + PAGE]))
            if page is None:
                return
            yield page
            before = page

    def publish(self, salt: Hashable, before: int | None, tokens: Seq[int], page: int) -> int:
        """`page` holds these 16 tokens behind page `before` (None: they begin the text). Returns the page to use.

        That is another one if the same text has been published already.
        """
        key = _key(salt, before, tokens)
        found = self._pages.setdefault(key, page)
        if found == page and page not in self._nodes:
            self._nodes[page] = _Node(key)
            if before is not None:
                self._nodes[before].num_children += 1
            if self._events is not None:
                self._events.published(page, before, salt, tokens)
        return found

    def listen(self, events: PageEvents) -> None:
        """It hears of every page, those that are here first: a page is always younger than the one before it."""
        self._events = events
        for page, node in self._nodes.items():
            events.published(page, node.before, node.key[1], node.key[2])

    def keep(self, page: int) -> None:
        """No text has this published page any more."""
        self._kept[page] = None

    def take(self, page: int) -> None:
        """A text has this published page now."""
        self._kept.pop(page, None)

    def evict(self) -> int:
        """Forget the page that goes first; returns it. There must be a kept one."""
        page = next(one for one in self._kept if not self._nodes[one].num_children)
        del self._kept[page]
        node = self._nodes.pop(page)
        del self._pages[node.key]
        if node.before is not None:
            self._nodes[node.before].num_children -= 1
        if self._events is not None:
            self._events.evicted(page)
        return page

    def clear(self) -> list[int]:
        """Forget all that no text has; returns those pages."""
        return [self.evict() for _ in range(len(self._kept))]

    def check(self) -> None:
        children = dict.fromkeys(self._nodes, 0)
        for page, node in self._nodes.items():
            if self._pages.get(node.key) != page:
                raise AssertionError(f"prefixes: page {page} is not found by its own text")
            if (before := node.before) is not None:
                if before not in self._nodes:
                    raise AssertionError(f"prefixes: page {page} stands behind page {before}, which is not published")
                children[before] += 1
                if before in self._kept and page not in self._kept:
                    raise AssertionError(f"prefixes: a text has page {page}, and none the page {before} before it")
        wrong = [page for page, node in self._nodes.items() if node.num_children != children[page]]
        if wrong or len(self._pages) != len(self._nodes) or not self._kept.keys() <= self._nodes.keys():
            raise AssertionError(f"prefixes: pages {wrong} count children that are not there, or pages are lost")


def _key(salt: Hashable, before: int | None, tokens: Seq[int]) -> Key:
    return before, salt if before is None else None, tuple(tokens)

"""PIA's trie: short branches of the prompt and of all outputs, counted, as a tree of the most frequent continuations.

Zhao et al., "Lookahead: an inference acceleration framework for large language model with lossless generation
accuracy", 2023, https://arxiv.org/abs/2312.12728 (Painless Inference Acceleration; not lookahead decoding).
Data in: token ids; data out: a deterministic tree. The prompt's branches belong to the request, the outputs' are shared
by all requests of a salt; when these grow too many, all counts are halved and what was seen once is forgotten.
"""

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from heapq import heappop, heappush

from outdraft.core.draft import Draft
from outdraft.core.drafter import Traits
from outdraft.core.method import DrafterMethod, arxiv
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.look_up.quotes import Quotes, Texts
from outdraft.drafters.shared.look_up.span_index import Sequel, look_up, paths
from outdraft.drafters.shared.per_salt import PerSalt
from outdraft.drafters.shared.plain import OneByOne
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import MOST_NODES, check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class PiaOptions:
    """Sizes and weights. Raises `ConfigError` naming what is out of range."""

    branch: int = 12  # how many tokens a branch of the trie has: those that are matched and those that may follow
    nodes: int = 64  # how many nodes a guess has at most, the most frequent ones
    # the longest end of the text that is looked up, in tokens; a guess has at most `branch` minus the match of them
    max_match: int = 4
    min_match: int = 2  # the shortest end of the text that is looked up, in tokens
    prompt_weight: float = 2.0  # how much a branch of the prompt counts beside one of an output, which counts 1
    # by what all counts are multiplied when the trie of outputs is full; nodes that fall below 1 are removed
    decay: float = 0.5
    max_nodes: int = (
        200_000  # how many nodes the tries of outputs and of references may have; each takes about 300 bytes
    )

    def __post_init__(self) -> None:
        if not 1 <= self.min_match <= self.max_match < self.branch:
            raise ConfigError(
                f"min_match={self.min_match}, max_match={self.max_match}, branch={self.branch}: "
                "need 1 <= min_match <= max_match < branch"
            )
        check_range(self, "branch", most=1024)
        check_range(self, "nodes", least=1, most=MOST_NODES)
        check_range(self, "max_nodes", least=self.branch)
        if not 0 <= self.decay < 1:
            raise ConfigError(f"decay={self.decay}: must be at least 0 and less than 1")
        check_range(self, "prompt_weight", least=0, most=1e6)


class _Branch:
    __slots__ = ("children", "count")

    def __init__(self) -> None:
        self.count = 0.0
        self.children: dict[int, _Branch] = {}


class BranchTrie:
    """Branches with how often each of their beginnings was put in, halved now and then."""

    def __init__(self) -> None:
        self._root = _Branch()
        self.num_nodes = 0

    def put(self, branch: Seq[int]) -> None:
        """Count a branch once more."""
        node = self._root
        for token in branch:
            child = node.children.get(token)
            if child is None:
                child = node.children[token] = _Branch()
                self.num_nodes += 1
            child.count += 1
            node = child

    def find(self, span: Seq[int]) -> _Branch | None:
        """The node that `span` leads to."""
        node: _Branch | None = self._root
        for token in span:
            node = node.children.get(token) if node is not None else None
        return node

    def decay(self, factor: float) -> None:
        """Multiply all counts; forget what falls below 1, with all below it."""
        self.num_nodes, todo = 0, [self._root]
        while todo:
            node = todo.pop()
            for child in node.children.values():
                child.count *= factor
            node.children = {token: child for token, child in node.children.items() if child.count >= 1}
            self.num_nodes += len(node.children)
            todo += node.children.values()


@dataclass(slots=True)
class BranchIndex:
    """One request's prompt and references beside the outputs of all of its salt. A `SpanIndex`."""

    options: PiaOptions
    outputs: BranchTrie
    prompt: BranchTrie = field(default_factory=BranchTrie)
    quoted: BranchTrie = field(default_factory=BranchTrie)
    entered: int = 0  # output tokens whose branches are in

    def lookup(self, context: Seq[int], depth: int) -> Iterator[Sequel]:
        """The heaviest continuations of the longest end of the text that any of the tries knows."""
        own = self.options.prompt_weight
        tries = ((self.prompt, own), (self.quoted, own), (self.outputs, 1.0))
        for match in range(min(self.options.max_match, len(context)), self.options.min_match - 1, -1):
            span = context[len(context) - match :]
            found = [
                (node, weight) for trie, weight in tries if (node := trie.find(span)) is not None and node.children
            ]
            if found:
                yield from self._heaviest(found, depth)
                return

    def _heaviest(self, found: list[tuple[_Branch, float]], depth: int) -> Iterator[Sequel]:
        """Paths to the heaviest nodes of all tries in one."""
        heap: list[tuple[float, int, int, int, int, list[tuple[_Branch, float]]]] = []
        tokens, parents, counts = list[int](), list[int](), list[float]()
        born, at, level, nodes = 0, -1, 0, found
        while True:
            below: dict[int, list[tuple[_Branch, float]]] = {}
            for node, weight in nodes if level < depth else ():
                for token, child in node.children.items():
                    below.setdefault(token, []).append((child, weight))
            for token, children in below.items():
                born += 1
                heappush(heap, (-sum(n.count * weight for n, weight in children), born, at, level + 1, token, children))
            if not heap or len(tokens) == self.options.nodes:
                return paths(tokens, parents, counts)
            negated, _, parent, level, token, nodes = heappop(heap)
            at = len(tokens)
            tokens.append(token)
            parents.append(parent)
            counts.append(-negated)


class PiaDrafter(OneByOne):
    """Remembers the branches of all outputs as long as it lives."""

    def __init__(self, options: PiaOptions) -> None:
        self._options = options
        self._outputs = PerSalt(BranchTrie)
        self.traits = Traits(forget=self._outputs.forget, quotes=True)
        self._quotes = Quotes(self._quoted)
        self._own: dict[int, BranchIndex] = {}

    def begin(self, seqs: Seq[Sequence]) -> None:
        """Enter each prompt, a branch from every token on; and its references."""
        size = self._options.branch
        for seq in seqs:
            own = self._own[seq.id] = BranchIndex(self._options, self._outputs.of(seq))
            own.entered = max(0, seq.num_output - size + 1)  # a text that begins again had entered its whole branches
            for start in range(seq.prompt_len):
                own.prompt.put(seq.tokens[start : min(start + size, seq.prompt_len)])
            self._quotes.begin(seq)

    def end(self, seqs: Seq[Sequence]) -> None:
        """The prompt's branches go, the output's last ones come in; whole ones only of a text that will begin again."""
        for seq in seqs:
            if (own := self._own.pop(seq.id, None)) is not None:
                self._quotes.end(seq)
                self._enter(seq, own, self._whole(seq) if seq.finish_reason is None else len(seq.tokens))

    def guess(self, seq: Sequence, budget: Budget) -> Draft:
        """Enter what was written, then guess."""
        own = self._own[seq.id]
        own.quoted = self._quotes.of(seq) or own.quoted
        self._enter(seq, own, self._whole(seq))
        return look_up(own, seq, budget, max_nodes=self._options.nodes)

    def _quoted(self, texts: Texts) -> BranchTrie:
        """As many branches as the trie of outputs may have, too."""
        trie = BranchTrie()
        for text in texts:
            for start in range(len(text)):
                if trie.num_nodes < self._options.max_nodes:
                    trie.put(text[start : start + self._options.branch])
        return trie

    def _whole(self, seq: Sequence) -> int:
        """Where branches no longer have all of their tokens."""
        return len(seq.tokens) - self._options.branch + 1

    def _enter(self, seq: Sequence, own: BranchIndex, stop: int) -> None:
        """A branch from each output token before `stop`."""
        own.outputs = outputs = self._outputs.of(seq)
        first = seq.prompt_len + own.entered
        for start in range(first, stop):
            outputs.put(seq.tokens[start : start + self._options.branch])
        own.entered += max(0, stop - first)
        if outputs.num_nodes > self._options.max_nodes:
            outputs.decay(self._options.decay)


METHOD: DrafterMethod[PiaOptions, TargetPort, PiaDrafter] = DrafterMethod(
    name="pia",
    summary="a trie of short branches of the prompt and of all outputs, frequent ones first (no model)",
    build=lambda options, port: PiaDrafter(options),
    options=PiaOptions,
    paper=arxiv(
        "2312.12728",
        "Lookahead: an inference acceleration framework for large language model with lossless generation accuracy",
    ),
    shape_of=lambda options: "tree",
)

"""Copy from the documents that came with the request: find the last tokens in them, guess what follows there.

Yang et al., "Inference with reference: lossless acceleration of large language models" (LLMA), 2023,
https://arxiv.org/abs/2304.04487. Data in: `Request.references`, texts that the answer may copy from; data out: a
deterministic chain, or a tree of several continuations. Unlike the paper's code it compares token ids, not strings.
"""

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from outdraft.core.draft import Draft
from outdraft.core.drafter import Traits
from outdraft.core.method import DrafterMethod, arxiv
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.look_up.lookup_drafter import IndexDrafter, check_ngrams
from outdraft.drafters.shared.look_up.ngram_index import NgramIndex
from outdraft.drafters.shared.look_up.quotes import Texts
from outdraft.drafters.shared.look_up.span_index import Sequel, look_up
from outdraft.models.networks.port import TargetPort


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmaOptions:
    """How to look up. Raises `ConfigError` naming what is out of range."""

    max_ngram: int = 5  # the longest end of the text that is looked up, in tokens; it is tried first
    # the shortest end of the text, in tokens, that a match must cover before what followed it is copied
    min_ngram: int = field(default=1, metadata={"aliases": ("trigger",)})
    width: int = 1  # how many distinct continuations are merged into one tree; 1 is a chain
    # whether the request's own prompt and output are searched too, besides the reference documents
    index_output: bool = False

    def __post_init__(self) -> None:
        check_ngrams(self.min_ngram, self.max_ngram, self.width)


class LlmaDrafter(IndexDrafter[NgramIndex, NgramIndex]):
    """Knows nothing but the references of a request, and its text if that is wanted."""

    traits = Traits(peeks=True, quotes=True)

    def __init__(self, options: LlmaOptions) -> None:
        super().__init__(lambda seq: self._empty(), self._quote)
        self._options = options

    def guess(self, seq: Sequence, budget: Budget) -> Draft:
        """What followed the last tokens there; node 0 alone if they are new."""
        indices, width = [], self._options.width
        if self._options.index_output:
            indices.append(self.own(seq))
        if (quoted := self.quoted(seq)) is not None:
            indices.append(quoted)
        index = _Joined(self._options, indices)
        return look_up(index, seq, budget, max_nodes=width * budget.depth, max_branches=width)

    def _empty(self) -> NgramIndex:
        return NgramIndex(self._options.min_ngram, self._options.max_ngram)

    def _quote(self, texts: Texts) -> NgramIndex:
        index = self._empty()
        for text in reversed(texts):  # what is entered last is found first
            index.extend(text)
            index.close()
        return index


@dataclass(frozen=True, slots=True)
class _Joined:
    """Longest end of the text first; of equal ones that of the first index."""

    options: LlmaOptions
    indices: list[NgramIndex]

    def lookup(self, context: Seq[int], depth: int) -> Iterator[Sequel]:
        for n in range(self.options.max_ngram, self.options.min_ngram - 1, -1):
            for index in self.indices:
                yield from index.sequels(context, n, depth)


METHOD: DrafterMethod[LlmaOptions, TargetPort, LlmaDrafter] = DrafterMethod(
    name="llma",
    summary="copy from the reference documents that came with the request (no model)",
    build=lambda options, port: LlmaDrafter(options),
    options=LlmaOptions,
    paper=arxiv("2304.04487", "Inference with reference: lossless acceleration of large language models"),
    shape_of=lambda options: "chain" if options.width == 1 else "tree",
    forms={"chain": {"width": 1}, "tree": {"width": 3}},
    quotes_alone=True,
)

"""Copy from the documents that came with the request: find the last tokens in them, guess what follows there.

Yang et al., "Inference with reference: lossless acceleration of large language models" (LLMA), 2023,
https://arxiv.org/abs/2304.04487. Data in: `Request.references`, texts that the answer may copy from; data out: a
deterministic chain, or a tree of several continuations. Unlike the paper's code it compares token ids, not strings.
"""

from dataclasses import dataclass, field

from outdraft.core.method import DrafterMethod, Paper
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.look_up.lookup_drafter import LookupDrafter
from outdraft.drafters.shared.look_up.ngram_index import NgramIndex
from outdraft.drafters.shared.look_up.ranges import check_ngrams
from outdraft.models.port import TargetPort


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


def build(options: LlmaOptions, port: TargetPort) -> LookupDrafter:
    """Needs nothing of the target. Longest suffix first; of equal ones the output, then the first document."""

    def make_index(seq: Sequence) -> NgramIndex:
        index = NgramIndex(options.min_ngram, options.max_ngram)
        for document in reversed(seq.request.references):  # what is entered last is found first
            index.extend(document)
            index.close()
        return index

    return LookupDrafter(make_index, options.width, learns=options.index_output, quotes=True)


METHOD = DrafterMethod(
    name="llma",
    summary="copy from the reference documents that came with the request (no model)",
    build=build,
    options=LlmaOptions,
    paper=Paper(
        title="Inference with reference: lossless acceleration of large language models",
        year=2023,
        link="https://arxiv.org/abs/2304.04487",
    ),
    shape_of=lambda options: "chain" if options.width == 1 else "tree",
    forms={"chain": {"width": 1}, "tree": {"width": 3}},
)

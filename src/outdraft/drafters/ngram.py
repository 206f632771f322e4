"""Look the next tokens up in the text itself: find the last tokens earlier in prompt or output, copy what followed.

Yang et al., "Inference with reference: lossless acceleration of large language models" (LLMA), 2023,
https://arxiv.org/abs/2304.04487; Saxena, "Prompt lookup decoding", 2023,
https://github.com/apoorvumang/prompt-lookup-decoding.
Data in: token ids; data out: a deterministic chain, or a small trie of several continuations. No model, no state but an
index of the text.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from outdraft.core.draft import Draft
from outdraft.core.drafter import Seen
from outdraft.core.errors import ConfigError
from outdraft.core.policy import Budget
from outdraft.core.registry import Method, Paper
from outdraft.core.sequence import Sequence
from outdraft.core.target import Needs, TargetPort
from outdraft.drafters.shared.ngram_index import NgramIndex
from outdraft.drafters.shared.span_index import look_up


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramOptions:
    """How to look up. Raises `ConfigError` naming what is out of range."""

    max_ngram: int = field(default=3, metadata={"aliases": ("prompt_lookup_max",)})  # longest suffix, tried first
    min_ngram: int = field(default=1, metadata={"aliases": ("prompt_lookup_min",)})  # shortest suffix looked up
    width: int = 1  # distinct continuations merged into one tree; 1: a chain
    wrap: bool = True  # a copy that reaches the end of the text goes on with its own guess (text in a loop)

    def __post_init__(self) -> None:
        if not 1 <= self.min_ngram <= self.max_ngram:
            raise ConfigError(
                f"min_ngram={self.min_ngram}, max_ngram={self.max_ngram}: need 1 <= min_ngram <= max_ngram"
            )
        if self.width < 1:
            raise ConfigError(f"width={self.width}: must be at least 1 (1 is a chain)")


class NgramDrafter:
    """Longest suffix first, latest match first; continuations shorter than the budget are kept."""

    needs = Needs()

    def __init__(self, options: NgramOptions) -> None:
        self._options = options
        self._indices: dict[int, NgramIndex] = {}

    def begin(self, seqs: Seq[Sequence]) -> None:
        """An empty index for each."""
        options = self._options
        for seq in seqs:
            self._indices[seq.id] = NgramIndex(options.min_ngram, options.max_ngram, wrap=options.wrap)

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """What followed the last tokens earlier on; node 0 alone if they are new."""
        return [self._propose(seq, budget) for seq, budget in zip(seqs, budgets, strict=True)]

    def observe(self, seen: Seq[Seen]) -> None:
        """Nothing: the text is in `seq.tokens`, and is indexed when next asked."""

    def end(self, seqs: Seq[Sequence]) -> None:
        """Drop the indices."""
        for seq in seqs:
            self._indices.pop(seq.id, None)

    def _propose(self, seq: Sequence, budget: Budget) -> Draft:
        index, width = self._indices[seq.id], self._options.width
        index.extend(seq.tokens[len(index) :])
        return look_up(index, seq, budget, max_nodes=width * budget.depth, max_branches=width)


def build(options: NgramOptions, port: TargetPort) -> NgramDrafter:
    """Needs nothing of the target."""
    return NgramDrafter(options)


METHOD = Method(
    name="ngram",
    kind="drafter",
    summary="look the last tokens up in prompt and output, copy what followed (no model)",
    build=build,
    options=NgramOptions,
    paper=Paper(
        title="Inference with reference: lossless acceleration of large language models",
        year=2023,
        link="https://arxiv.org/abs/2304.04487",
    ),
    shapes=("chain", "tree"),
)

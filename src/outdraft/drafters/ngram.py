"""Look the next tokens up in the text itself: find the last tokens earlier in prompt or output, copy what followed.

Yang et al., "Inference with reference: lossless acceleration of large language models" (LLMA), 2023,
https://arxiv.org/abs/2304.04487; Saxena, "Prompt lookup decoding", 2023,
https://github.com/apoorvumang/prompt-lookup-decoding.
Data in: token ids; data out: a deterministic chain, or a small trie of several continuations. No model, no state but an
index of the text.
"""

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from itertools import islice

from outdraft.core.draft import Draft, chain
from outdraft.core.drafter import Seen
from outdraft.core.errors import ConfigError
from outdraft.core.policy import Budget
from outdraft.core.registry import Method, Paper
from outdraft.core.sequence import Sequence
from outdraft.core.target import Needs, TargetPort
from outdraft.drafters.shared.limits import usable_depth, usable_nodes
from outdraft.drafters.shared.ngram_index import NgramIndex
from outdraft.drafters.shared.trie import Trie

_MAX_LOOKS = 8  # earlier occurrences examined for each branch wanted: bounds the cost of very common n-grams


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
        for seq in seqs:
            self._indices[seq.id] = NgramIndex(self._options.min_ngram, self._options.max_ngram)

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
        width, depth = self._options.width, usable_depth(seq, budget)
        if depth == 0:
            return chain([seq.pending])
        if width == 1:
            return chain([seq.pending, *next(self._continuations(seq, depth), [])])
        trie = Trie(seq.pending, usable_nodes(seq, budget, width * depth))
        branches = 0
        for copied in islice(self._continuations(seq, depth), width * _MAX_LOOKS):
            branches += trie.insert(copied)
            if branches == width:
                break
        return trie.draft()

    def _continuations(self, seq: Sequence, depth: int) -> Iterator[list[int]]:
        """Copies of at most `depth` tokens, best first, repeats included."""
        index, tokens = self._indices[seq.id], seq.tokens
        index.extend(tokens)
        for n in range(min(self._options.max_ngram, len(tokens)), self._options.min_ngram - 1, -1):
            for start in index.follows(tokens, n):
                copied = tokens[start : start + depth]
                if self._options.wrap:
                    period = len(tokens) - start
                    copied += [copied[i % period] for i in range(len(copied), depth)]
                yield copied


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

"""SAM decoding: the longest match of the text's end, found by suffix automata at constant cost a token, is copied on.

Hu et al., "SAM decoding: speculative decoding via suffix automaton", 2024, https://arxiv.org/abs/2411.10666.
Data in: token ids; data out: a deterministic chain, or what another drafter makes where the match is short. A dynamic
automaton holds the text so far (prompt, output); static ones hold the request's references, and a datastore's text.
"""

from array import array
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from outdraft.core.draft import Draft
from outdraft.core.drafter import Drafter, Seen, Traits
from outdraft.core.method import DrafterMethod, arxiv
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.composed.nested import build_nested, shape_of_nested
from outdraft.drafters.shared.look_up.datastore.file import open_for
from outdraft.drafters.shared.look_up.lookup_drafter import IndexDrafter
from outdraft.drafters.shared.look_up.quotes import Texts
from outdraft.drafters.shared.look_up.span_index import BORDER, Sequel, copy_on, look_up
from outdraft.kernels.text_index.automaton import Automaton, Cursor, make_automaton
from outdraft.models.networks.port import TargetPort
from outdraft.options.ranges import check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class SamOptions:
    """What is known, and when it is trusted. Raises `ConfigError` naming what is out of range."""

    # a file of `outdraft datastore build` that is searched too; it takes about 100 bytes of memory a token
    datastore: str = ""
    # a match in the datastore is taken only if it is longer than the request's own by more than this many tokens; for
    # `min_match` too it counts as so much shorter
    bias: int = 5
    # a match shorter than this is left to the drafter `otherwise`; the paper takes 5 beside a trained drafter
    min_match: int = 2
    # the drafter that is asked where no match is long enough: a name, or {"method": NAME, OPTION: VALUE}
    otherwise: str | Mapping[str, Any] = "none"

    def __post_init__(self) -> None:
        check_range(self, "min_match", least=1)
        check_range(self, "bias", least=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticText:
    """A text that does not change, and its automaton."""

    text: "array[int]"
    automaton: Automaton = field(default_factory=make_automaton)

    def __post_init__(self) -> None:
        self.automaton.extend(self.text)


@dataclass(slots=True)
class StaticReading:
    """How far the end of a growing text is known to a static one. `bias`: tokens by which a match counts shorter."""

    static: StaticText
    bias: int = 0
    cursor: Cursor = field(default_factory=Cursor)

    def extend(self, tokens: Seq[int]) -> None:
        self.static.automaton.read(self.cursor, tokens)

    @property
    def match(self) -> int:
        return self.cursor.length - self.bias

    def copy(self, depth: int) -> list[int]:
        return copy_on(self.static.text, self.static.automaton.end(self.cursor) + 1, depth)


@dataclass(slots=True)
class RequestIndex:
    """One text's automaton and its places in the static ones. A `SpanIndex` of one answer."""

    readings: list[StaticReading]
    text: list[int] = field(default_factory=list)
    automaton: Automaton = field(default_factory=make_automaton)

    def extend(self, tokens: Seq[int]) -> None:
        self.text += tokens
        self.automaton.extend(tokens)
        for reading in self.readings:
            reading.extend(tokens)

    def read_too(self, static: StaticText) -> None:
        """One more static text, which wins over those before it where its match is as long."""
        reading = StaticReading(static)
        reading.extend(self.text)
        self.readings.append(reading)

    @property
    def match(self) -> int:
        """Length of the match that is copied from."""
        return max(self.automaton.match, *(reading.match for reading in self.readings), 0)

    def lookup(self, context: Seq[int], depth: int) -> Iterator[Sequel]:
        """What followed; a copy that reaches the end of the request goes on with itself (text in a loop)."""
        match = self.match
        if self.automaton.match == match:
            yield Sequel(copy_on(self.text, self.automaton.match_end + 1, depth, wrap=True))
        else:
            yield Sequel(next(one for one in reversed(self.readings) if one.match == match).copy(depth))


class SamDrafter(IndexDrafter[RequestIndex, StaticText]):
    """`inner` drafts where the match is short; it sees everything that it would see alone."""

    def __init__(self, options: SamOptions, static: StaticText | None, inner: Drafter) -> None:
        super().__init__(self._new, _static)
        self.needs, self.traits = inner.needs, Traits(inner=(inner,), quotes=True, shape=inner.traits.shape)
        self._options, self._static, self._inner = options, static, inner

    def _new(self, seq: Sequence) -> RequestIndex:
        return RequestIndex([] if self._static is None else [StaticReading(self._static, self._options.bias)])

    def begin(self, seqs: Seq[Sequence]) -> None:
        """An automaton for each, and one for its references."""
        self._inner.begin(seqs)
        super().begin(seqs)

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """A copy where the match is long enough, else the inner drafter's guess."""
        drafts: list[Draft | None] = [self._copy(seq, budget) for seq, budget in zip(seqs, budgets, strict=True)]
        left = [i for i, draft in enumerate(drafts) if draft is None]
        others = self._inner.propose([seqs[i] for i in left], [budgets[i] for i in left]) if left else []
        guesses = iter(others)
        return [next(guesses) if draft is None else draft for draft in drafts]

    def observe(self, seen: Seq[Seen]) -> None:
        self._inner.observe(seen)

    def end(self, seqs: Seq[Sequence]) -> None:
        self._inner.end(seqs)
        super().end(seqs)

    def _copy(self, seq: Sequence, budget: Budget) -> Draft | None:
        index, quoted = self.own(seq), self.quoted(seq)
        if quoted is not None and all(one.static is not quoted for one in index.readings):
            index.read_too(quoted)
        if index.match < self._options.min_match:
            return None
        copy = look_up(index, seq, budget, max_nodes=budget.depth, max_branches=1)
        return copy if copy.num_nodes > 1 else None  # where the match ends a document, nothing follows it


def _static(texts: Texts) -> StaticText:
    return StaticText(text=array("i", [token for one in texts for token in (*one, BORDER)]))


def build(options: SamOptions, port: TargetPort) -> SamDrafter:
    """Read the datastore into an automaton, and build the other drafter."""
    static = None
    if options.datastore:
        corpus = open_for(options.datastore, port).corpus
        static = StaticText(text=array("i", np.where(corpus.tokens == corpus.end, BORDER, corpus.tokens).tobytes()))
    return SamDrafter(options, static, build_nested(options.otherwise, port)[0])


METHOD = DrafterMethod(
    name="sam",
    summary="copy on from the longest match, by suffix automata of the request and of a datastore (no model)",
    build=build,
    options=SamOptions,
    paper=arxiv("2411.10666", "SAM decoding: speculative decoding via suffix automaton"),
    shape_of=lambda options: "tree" if shape_of_nested([options.otherwise]) == "tree" else "chain",
)

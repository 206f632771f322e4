"""Forms compiled for one model: each once, however many texts follow it. Any thread may ask.

    form -> spelling -> proven in a child process -> llguidance -> a matcher at the first token, copied for every text

Data in: a form, and whether end tokens count; data out: a function that makes the constraint of one text.
"""

from collections import OrderedDict
from collections.abc import Callable, Set
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from threading import Lock
from typing import Any

from outdraft.codecs.codec import TextualCodec
from outdraft.codecs.grammar.budget import MaskBudget
from outdraft.codecs.grammar.constraint import GrammarConstraint
from outdraft.codecs.grammar.forced_text import TokenTable
from outdraft.codecs.grammar.library import LIMITS, Vocabulary, first_line, llguidance, make_tokenizer
from outdraft.codecs.grammar.prover import Prover
from outdraft.codecs.grammar.spelling import spell
from outdraft.options.errors import RequestError
from outdraft.options.structured import StructuredOutputsParams

MOST_KEPT = 64 << 20  # bytes of compiled forms, those used last
_LEAST = 1 << 14  # bytes of one, with its text


@dataclass(frozen=True, slots=True)
class _Library:
    """What the library needs to know of the model, made at the first form."""

    tokenizer: Any
    table: TokenTable
    prover: Prover


@dataclass(eq=False)
class Grammars:
    """What is compiled for one model. The library is imported, and its tree of tokens built, at the first form."""

    codec: TextualCodec
    _: KW_ONLY
    vocab_size: int  # the model's rows, V; ids beyond the codec's are never allowed
    ends: Set[int]  # tokens that end a text
    _lock: Lock = field(default_factory=Lock, init=False)
    _library: _Library | None = field(default=None, init=False)
    _kept: OrderedDict[str, tuple[Any, int]] = field(default_factory=OrderedDict, init=False)

    def constraint(self, form: StructuredOutputsParams, *, ignore_eos: bool) -> Callable[[], GrammarConstraint]:
        """A function that makes the constraint of one text; all that it makes share what the masks of a request may
        cost. `ignore_eos`: end tokens are never allowed.

        Raises `RequestError` for a form that cannot be compiled, or follows no text at all.
        """
        return partial(
            self._begin, self._compiled(form), MaskBudget(), frozenset() if ignore_eos else frozenset(self.ends)
        )

    def _compiled(self, form: StructuredOutputsParams) -> Any:
        spelt = spell(form)
        with self._lock:
            if (known := self._kept.get(spelt)) is not None:
                self._kept.move_to_end(spelt)
                return known[0]
            library = self._library = self._library or self._load()
        made, size = self._compile(form, spelt, library)
        with self._lock:
            self._kept[spelt] = made, size
            while sum(size for _, size in self._kept.values()) > MOST_KEPT:
                self._kept.popitem(last=False)
        return made

    def _load(self) -> _Library:
        num_tokens = min(getattr(self.codec, "num_ids", self.codec.vocab_size), self.vocab_size)  # that may be text
        vocabulary = Vocabulary(self.codec, num_tokens, frozenset(self.ends))
        tokenizer = make_tokenizer(vocabulary)
        return _Library(tokenizer, TokenTable(vocabulary.tokens, vocabulary), Prover(vocabulary.tokens))

    def _compile(self, form: StructuredOutputsParams, spelt: str, library: _Library) -> tuple[Any, int]:
        """The matcher, and the bytes that it takes."""
        proof = library.prover.prove(form.kind, spelt)
        error, limits = proof.error, llguidance().LLParserLimits(**LIMITS)
        if not error:
            matcher = llguidance().LLMatcher(library.tokenizer, spelt, log_level=0, limits=limits)
            error = matcher.get_error()
        if error:
            raise RequestError(f"{form.kind} of structured_outputs cannot be compiled: {first_line(error)}")
        begun = self._begin(matcher, MaskBudget(), frozenset())
        if begun.is_over():
            raise RequestError(f"{form.kind} of structured_outputs allows the empty text alone: leave it out")
        if begun.is_stuck():
            raise RequestError(f"{form.kind} of structured_outputs allows no text at all: it contradicts itself")
        return matcher, max(_LEAST, proof.num_bytes + len(spelt))

    def _begin(self, matcher: Any, budget: MaskBudget, ends: frozenset[int]) -> GrammarConstraint:
        assert self._library is not None
        return GrammarConstraint(matcher, self._library.table, budget, vocab_size=self.vocab_size, ends=ends)

"""Forms compiled for one model: each once, however many texts follow it. Any thread may ask.

    form -> spelling -> llguidance -> a matcher at the first token, which every text gets a copy of

Data in: a form, and whether end tokens count; data out: a function that makes the constraint of one text.
"""

from collections import OrderedDict
from collections.abc import Callable, Set
from functools import partial
from threading import Lock
from typing import Any

from outdraft.codecs.codec import TextualCodec
from outdraft.codecs.grammar.constraint import GrammarConstraint, first_line
from outdraft.codecs.grammar.library import llguidance
from outdraft.codecs.grammar.spelling import spell
from outdraft.codecs.grammar.vocabulary import Vocabulary, make_tokenizer
from outdraft.core.errors import RequestError
from outdraft.core.structured import StructuredOutputsParams

MOST_KEPT = 64  # compiled grammars; each takes some megabytes at most
_LEXER_FUEL = 100_000  # of compiling: the library's steps, about 50 in a microsecond
_SYMBOLS = 2_000  # of a grammar: with more of them compiling takes a second and longer


class Grammars:
    """What is compiled for one model. The library is imported, and its tree of tokens built, at the first form."""

    def __init__(self, codec: TextualCodec, *, vocab_size: int, ends: Set[int]) -> None:
        """`vocab_size`: the model's rows, V; ids beyond the codec's are never allowed. `ends`: tokens that end a
        text."""
        self._codec = codec
        self._vocab_size = vocab_size
        self._ends = frozenset(ends)
        self._lock = Lock()
        self._num_tokens = min(getattr(codec, "num_ids", codec.vocab_size), vocab_size)  # that may be text
        self._tokenizer: Any = None
        self._kept: OrderedDict[str, Any] = OrderedDict()

    def constraint(self, form: StructuredOutputsParams, *, ignore_eos: bool) -> Callable[[], GrammarConstraint]:
        """A function that makes the constraint of one text. `ignore_eos`: end tokens are never allowed.

        Raises `RequestError` for a form that cannot be compiled, or follows no text at all.
        """
        return partial(self._begin, self._compiled(form), frozenset() if ignore_eos else self._ends)

    def _compiled(self, form: StructuredOutputsParams) -> Any:
        spelt = spell(form)
        with self._lock:
            if (known := self._kept.get(spelt)) is not None:
                self._kept.move_to_end(spelt)
                return known
            if self._tokenizer is None:
                self._tokenizer = make_tokenizer(Vocabulary(self._codec, self._num_tokens, self._ends))
            tokenizer = self._tokenizer
        made = self._compile(form, spelt, tokenizer)
        with self._lock:
            self._kept[spelt] = made
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return made

    def _compile(self, form: StructuredOutputsParams, spelt: str, tokenizer: Any) -> Any:
        library = llguidance()
        limits = library.LLParserLimits(
            initial_lexer_fuel=_LEXER_FUEL, max_grammar_size=_SYMBOLS, verbose_errors=False,
            precompute_large_lexemes=False,
        )  # fmt: skip
        matcher = library.LLMatcher(tokenizer, spelt, log_level=0, limits=limits)
        if matcher.is_error():
            raise RequestError(f"{form.kind} of structured_outputs cannot be compiled: {first_line(matcher)}")
        begun = self._begin(matcher, frozenset())
        if begun.is_over():
            raise RequestError(f"{form.kind} of structured_outputs allows the empty text alone: leave it out")
        if not bool(begun.allowed([]).any()):
            raise RequestError(f"{form.kind} of structured_outputs allows no text at all: it contradicts itself")
        return matcher

    def _begin(self, matcher: Any, ends: frozenset[int]) -> GrammarConstraint:
        return GrammarConstraint(matcher, num_tokens=self._num_tokens, vocab_size=self._vocab_size, ends=ends)

"""The constraint of one text under a grammar: a matcher that walks along with the output, and looks ahead for drafts.

    output   {"a":        the matcher stands here: `advance`
    drafts      `- 1 - }  `allowed([1])`: go on by the path, take the mask, go back
                `- "      every mask is kept until the output goes on, so that target and drafter share the work

Ends of the text are allowed exactly where the grammar accepts what is written, and the text is over where nothing but
an end may follow. Of text without a choice, the tokenizer's own next token alone is allowed (`forced_text.py`). Raises
`RequestError` where the library gives up or the masks take too much processor time (`budget.py`); that ends this
request and no other.
"""

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from contextlib import contextmanager
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from outdraft.codecs.grammar.budget import MaskBudget
from outdraft.codecs.grammar.forced_text import ForcedText, TokenTable, is_one_text, look_ahead
from outdraft.codecs.grammar.library import first_line
from outdraft.options.errors import DecodingError, RequestError

MOST_MASKS = 1024  # that are kept between two tokens of the output; a tree has seldom more nodes
_MOST_SPELLINGS = 64  # tokens that begin one text; more are a choice


class GrammarConstraint:
    """See `core.constraint.Form`. Two threads may ask at once; one at a time is answered."""

    def __init__(
        self, start: Any, table: TokenTable, budget: MaskBudget, *, vocab_size: int, ends: frozenset[int]
    ) -> None:
        """`start`: llguidance's matcher before any token; it is copied. `table`: the library's tokens, its end last.
        `budget`: of all texts of the request."""
        self._start = start
        self._budget = budget
        self._matcher = self._budget.charged(start.deep_copy())
        self._table = table
        self._num_tokens = len(table.tokens) - 1
        self._vocab_size = vocab_size
        self._ends = torch.tensor(sorted(ends), dtype=torch.long)
        self._end_ids = ends
        self._output: list[int] = []
        self._walked = 0  # tokens that the matcher is ahead of the output
        self._masks: dict[tuple[int, ...], Tensor] = {}
        self._ahead = (b"", ForcedText())  # bytes of a guess behind the output, and what is forced behind them
        self._forced: list[int] | None = None
        self._lock = Lock()
        self._has_ended = False

    @property
    def is_dear(self) -> bool:
        """Whether its masks take so long that nothing should be guessed (`decode/forced.py`)."""
        return self._budget.is_dear

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One thread at a time, on the account of the request."""
        with self._lock:
            self._budget.check()
            yield
            self._budget.check()

    def advance(self, token: int) -> None:
        """Go on by an emitted token. Raises `DecodingError` for one that the grammar forbids."""
        with self._alone():
            known = self._masks.get(())
            # What was asked behind this token is known already: it was a node of the draft that has been accepted.
            self._masks = {path[1:]: mask for path, mask in self._masks.items() if path and path[0] == token}
            self._forced = None
            if self._has_ended or token in self._end_ids:
                self._has_ended = True
                return
            if not self._may_follow([token]) or self._matcher.try_consume_tokens([token]) != 1:
                if self._matcher.is_error() or (known is not None and bool(known[token])):
                    raise self._given_up()
                raise DecodingError(
                    f"token {token} was kept, and the grammar forbids it there: a lossy rule, or a constraint that was "
                    "given another text"
                )
            self._output.append(token)
            self._budget.earn()
            self._ahead = _behind(*self._ahead, self._table.tokens[token])

    def is_over(self) -> bool:
        """Whether nothing but an end may follow the output, so that the text ends here."""
        with self._alone():
            if self._has_ended:
                return True
            if not self._matcher.is_accepting():
                return False
            mask = self._mask(()).clone()
            mask[self._ends] = False
            return not bool(mask.any())

    def is_stuck(self) -> bool:
        """Whether nothing may follow the output, not even an end."""
        with self._alone():
            return not bool(self._mask(()).any())

    def allowed(self, path: Seq[int]) -> Tensor:
        """[V] bool. Behind a token that is forbidden, or an end, everything is allowed.

        Raises `RequestError` where nothing may follow the output.
        """
        with self._alone():
            mask = self._mask(tuple(path))
            if not path and not bool(mask.any()):
                raise RequestError(
                    f"structured_outputs: the form contradicts itself: behind {len(self._output)} tokens of output "
                    "nothing may follow, and the text is not whole there"
                )
            return mask

    def forced(self) -> list[int]:
        """The tokens that the tokenizer makes of the only text that may follow; none where there is a choice."""
        with self._alone():
            if self._forced is None:
                self._mask(())
                found = [] if self._has_ended else self._spelt(())
                self._forced = found[: self._matcher.validate_tokens(found)] if found else []
            return self._forced

    def _mask(self, path: tuple[int, ...]) -> Tensor:
        known = self._masks.get(path)
        if known is None:
            if len(self._masks) >= MOST_MASKS:
                self._masks.clear()
            known = self._masks[path] = self._look(path)
        return known

    def _look(self, path: tuple[int, ...]) -> Tensor:
        if self._has_ended or not self._may_follow(path):
            return torch.ones(self._vocab_size, dtype=torch.bool)
        self._go_on(path)
        accepts, mask = self._read()
        if not accepts and is_one_text([self._table.tokens[i] for i in _few(mask)]):
            if not self._ahead_of(path).is_known:
                text = look_ahead(self._table.tokens, self._few_here, self._ends_behind, self._go_on)
                self._ahead = self._table.bytes_of(path), text
            if (spelt := self._spelt(path)) and bool(mask[spelt[0]]):
                mask = torch.zeros_like(mask)
                mask[spelt[0]] = True
        if self._walked:
            self._matcher.rollback(self._walked)
            self._walked = 0
        mask[self._ends] = accepts
        return mask

    def _go_on(self, tokens: Seq[int]) -> None:
        """Let the matcher walk ahead of the output."""
        if self._matcher.try_consume_tokens(list(tokens)) != len(tokens):
            raise self._given_up()
        self._walked += len(tokens)

    def _read(self) -> tuple[bool, Tensor]:
        """Whether the text may end where the matcher stands, and which tokens [V] go on there: perhaps none."""
        accepts, read = self._matcher.is_accepting(), self._matcher.compute_logit_bias()
        mask = torch.zeros(self._vocab_size, dtype=torch.bool)
        if self._matcher.is_error():
            if not first_line(self._matcher.get_error()).startswith("NoExtension"):
                raise self._given_up()
            self._begin_again()  # no token spells what the grammar wants; the choice of one raises the error
        else:
            mask[: self._num_tokens] = torch.frombuffer(bytearray(read), dtype=torch.uint8)[: self._num_tokens] != 0
        return accepts, mask

    def _few_here(self) -> Seq[int] | frozenset[int]:
        """See `look_ahead`."""
        accepts, mask = self._read()
        found = [] if accepts else _few(mask)
        return found or self._table.first_bytes(mask[: self._num_tokens])

    def _ends_behind(self, token: int) -> bool:
        """See `look_ahead`."""
        self._go_on([token])
        accepts = bool(self._matcher.is_accepting())
        self._matcher.rollback(1)
        self._walked -= 1
        return accepts

    def _ahead_of(self, path: Seq[int]) -> ForcedText:
        """What is known to be forced behind the path."""
        ahead, text = _behind(*self._ahead, self._table.bytes_of(path))
        return ForcedText() if ahead else text

    def _spelt(self, path: tuple[int, ...]) -> list[int]:
        before = next(reversed((*self._output[-1:], *path)), None)
        return self._table.spelt(before, self._ahead_of(path))

    def _may_follow(self, path: Seq[int]) -> bool:
        """Whether the grammar allows all of these tokens; the library knows no ids but the tokenizer's."""
        if any(not 0 <= token < self._num_tokens for token in path):
            return False
        return bool(self._matcher.validate_tokens(list(path)) == len(path))

    def _given_up(self) -> RequestError:
        """Why the library goes on no more."""
        why, place = first_line(self._matcher.get_error()), len(self._output) + self._walked
        self._begin_again()
        return RequestError(
            f"structured_outputs: the form takes too much work behind {place} tokens of output: {why}; make it simpler"
        )

    def _begin_again(self) -> None:
        """A matcher that has failed stays so: another one takes its place, so that a guess does no harm."""
        self._matcher, self._walked = self._budget.charged(self._start.deep_copy()), 0
        self._matcher.try_consume_tokens(self._output)


def _few(mask: Tensor) -> list[int]:
    """The ids of a mask, if these are few."""
    return mask.nonzero().flatten().tolist() if int(mask.count_nonzero()) <= _MOST_SPELLINGS else []


def _behind(ahead: bytes, text: ForcedText, start: bytes) -> tuple[bytes, ForcedText]:
    """What is known behind `start`, of what is forced behind `ahead`; nothing where it begins otherwise."""
    if ahead.startswith(start):
        return ahead[len(start) :], text
    return b"", text.behind(start[len(ahead) :]) if start.startswith(ahead) else ForcedText()

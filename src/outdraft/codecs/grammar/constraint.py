"""The constraint of one text under a grammar: a matcher that walks along with the output, and looks ahead for drafts.

    output   {"a":        the matcher stands here: `advance`
    drafts      `- 1 - }  `allowed([1])`: go on by the path, take the mask, go back
                `- "      every mask is kept until the output goes on, so that target and drafter share the work

Ends of the text are allowed exactly where the grammar accepts what is written, and the text is over where nothing but
an end may follow. Raises `RequestError` where the library gives up, because a mask takes too much work; that ends this
request and no other.
"""

from collections.abc import Sequence as Seq
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from outdraft.core.errors import DecodingError, RequestError

MOST_MASKS = 1024  # that are kept between two tokens of the output; a tree has seldom more nodes


class GrammarConstraint:
    """See `core.constraint.Form`. Two threads may ask at once; one at a time is answered."""

    def __init__(self, start: Any, *, num_tokens: int, vocab_size: int, ends: frozenset[int]) -> None:
        """`start`: llguidance's matcher before any token; it is copied. `num_tokens`: ids that may be text, of V."""
        self._start = start
        self._matcher = start.deep_copy()
        self._num_tokens = num_tokens
        self._vocab_size = vocab_size
        self._ends = torch.tensor(sorted(ends), dtype=torch.long)
        self._end_ids = ends
        self._output: list[int] = []
        self._masks: dict[tuple[int, ...], Tensor] = {}
        self._forced: list[int] | None = None
        self._lock = Lock()
        self._has_ended = False

    def advance(self, token: int) -> None:
        """Go on by an emitted token. Raises `DecodingError` for one that the grammar forbids."""
        with self._lock:
            # What was asked behind this token is known already: it was a node of the draft that has been accepted.
            self._masks = {path[1:]: mask for path, mask in self._masks.items() if path and path[0] == token}
            self._forced = None
            if self._has_ended or token in self._end_ids:
                self._has_ended = True
                return
            if not self._may_follow([token]) or self._matcher.try_consume_tokens([token]) != 1:
                raise DecodingError(
                    f"token {token} was kept, and the grammar forbids it there: a lossy rule, or a constraint that was "
                    "told another text"
                )
            self._output.append(token)

    def is_over(self) -> bool:
        """Whether nothing but an end may follow the output, so that the text ends here."""
        with self._lock:
            if self._has_ended:
                return True
            if not self._matcher.is_accepting():
                return False
            mask = self._mask(()).clone()
            mask[self._ends] = False
            return not bool(mask.any())

    def allowed(self, path: Seq[int]) -> Tensor:
        """[V] bool. Behind a token that is forbidden, or an end, everything is allowed."""
        with self._lock:
            return self._mask(tuple(path))

    def forced(self) -> list[int]:
        """The tokens that the tokenizer makes of the only text that may follow; none where there is a choice."""
        with self._lock:
            if self._forced is None:
                found = [] if self._has_ended else self._matcher.compute_ff_tokens()
                self._forced = found[: self._matcher.validate_tokens(found)] if found else []
            return self._forced

    def _mask(self, path: tuple[int, ...]) -> Tensor:
        known = self._masks.get(path)
        if known is None:
            if len(self._masks) >= MOST_MASKS:
                self._masks.clear()
            known = self._masks[path] = self._look(list(path))
        return known

    def _look(self, path: list[int]) -> Tensor:
        if self._has_ended or not self._may_follow(path):
            return torch.ones(self._vocab_size, dtype=torch.bool)
        matcher = self._matcher
        matcher.try_consume_tokens(path)
        accepts, read = matcher.is_accepting(), matcher.compute_logit_bias()
        if matcher.is_error():
            why = first_line(matcher)
            self._begin_again()
            if why.startswith("NoExtension"):  # no token spells what the grammar wants, and whoever chooses one says so
                return torch.zeros(self._vocab_size, dtype=torch.bool)
            raise RequestError(
                f"the grammar takes too much work behind {len(self._output) + len(path)} tokens of output: {why}; "
                "simplify its patterns"
            )
        if path:
            matcher.rollback(len(path))
        mask = torch.zeros(self._vocab_size, dtype=torch.bool)
        mask[: self._num_tokens] = torch.frombuffer(bytearray(read), dtype=torch.uint8)[: self._num_tokens] != 0
        mask[self._ends] = accepts
        return mask

    def _may_follow(self, path: list[int]) -> bool:
        """Whether the grammar allows all of these tokens; the library knows no ids but the tokenizer's."""
        if any(not 0 <= token < self._num_tokens for token in path):
            return False
        return bool(self._matcher.validate_tokens(path) == len(path))

    def _begin_again(self) -> None:
        """A matcher that has failed stays so: another one takes its place, so that a guess does no harm."""
        self._matcher = self._start.deep_copy()
        self._matcher.try_consume_tokens(self._output)


def first_line(matcher: Any) -> str:
    """What the library says went wrong, without its state."""
    lines = [line.strip() for line in str(matcher.get_error()).splitlines() if line.strip() and line[0] != "<"]
    return " ".join(lines)[:300] or "no reason is given"

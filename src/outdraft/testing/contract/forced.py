"""Rounds in which no drafter is asked: text without a choice is drafted for free, and drafters bear what they then see.

free      a b c              about half of ten tokens may follow, as in `EveryOther`
forced          d e f g      four tokens that follow from a b c; now and then the last but one has a twin
"""

from collections.abc import Sequence as Seq
from dataclasses import replace
from functools import partial

from torch import Tensor

from outdraft.testing.audit import require
from outdraft.testing.contract.ground import GREEDY, SEEDED, agrees, requests
from outdraft.testing.contract.masked import EveryOther
from outdraft.testing.subject import Subject, run
from outdraft.verify.auto import Auto

_FREE, _LENGTH, _WHOLE = 3, 7, 21  # tokens of a line that may be chosen, of a line, and of the text
LEAST = _LENGTH - _FREE  # tokens that are drafted together where a drafter guesses


class Lines(EveryOther):
    """A form for tests, which ends after three lines."""

    def allowed(self, path: Seq[int]) -> Tensor:
        """[V] bool: of a free token half of the first ten, else one token, or it and its twin."""
        text = [*self._output, *path]
        if len(text) % _LENGTH < _FREE:
            return super().allowed(path)
        token = self._next(text)
        return (self._ids == token) | ((self._ids == (token + 1) % 10) & self._is_doubtful(text))

    def is_over(self) -> bool:
        """Whether three lines are written."""
        return len(self._output) >= _WHOLE

    def forced(self) -> list[int]:
        """The rest of a line behind its free tokens; of twins the one that comes is a guess."""
        text = list(self._output)
        while len(text) % _LENGTH >= _FREE:
            text.append(self._next(text))
        return text[len(self._output) :]

    def _next(self, text: Seq[int]) -> int:
        at = len(text) % _LENGTH
        start = len(text) - at
        return (at + sum(text[start : start + _FREE])) % 10

    def _is_doubtful(self, text: Seq[int]) -> bool:
        return len(text) % _LENGTH == _LENGTH - 2 and text[-1] % 2 == 0


def forced_tokens_write_the_same(subject: Subject) -> None:
    """With tokens that a form forces, greedy and seeded ids are plain decoding's, and they come for fewer passes.

    A drafter that stands for plain decoding (`Traits.guesses`) gets none.
    """
    make = partial(Lines, subject.vocab_size)
    for params, depths in ((GREEDY, (1,)), (SEEDED, (3,))):
        batch = [replace(request, constraint=make) for request in requests(params)]
        wanted = [subject.oracle(request) for request in batch]
        for depth in depths:
            engine = subject.engine(depth=depth, verifier=Auto(), recheck=depth == 1)
            outcomes = run(engine, [*batch, *requests(params)])
            for outcome, ids in zip(outcomes, wanted, strict=False):
                agrees(subject, outcome, ids, f"forced, k={depth}")
            for outcome in outcomes[len(batch) :]:
                agrees(subject, outcome, subject.oracle(outcome.seq.request), f"beside forced ones, k={depth}")
            deepest = max(event.draft_depth for outcome in outcomes for event in outcome.events)
            least = LEAST if engine.parts.traits.guesses else 0
            require(deepest >= least, f"{subject.row.name}: {least} tokens were forced, and {deepest} were drafted")

"""The same ids as plain decoding where a mask decides what may follow: alone, in a batch, greedy and seeded."""

from collections.abc import Sequence as Seq
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from outdraft.testing.audit import require
from outdraft.testing.contract.ground import GREEDY, PENALISED_SEEDED, SEEDED, agrees, requests
from outdraft.testing.subject import Subject, run
from outdraft.verify.auto import Auto


class EveryOther:
    """A constraint for tests: about half of the first ten tokens may follow; which ones depends on the last two and on
    how many there are. So a token that it was not given, or given twice, shows, and so few tokens are guessed often.
    """

    def __init__(self, vocab_size: int) -> None:
        self._ids = torch.arange(vocab_size)
        self._few = self._ids < 10
        self._output: list[int] = []

    def advance(self, token: int) -> None:
        self._output.append(token)

    def allowed(self, path: Seq[int]) -> Tensor:
        """[V] bool: three of five neighbours among the first ten."""
        last, before = ([0, 0, *self._output, *path])[:-3:-1]
        return self._few & ((self._ids * 2 + last * 3 + before + len(self._output) + len(path)) % 5 < 3)


MASKED = replace(
    PENALISED_SEEDED, stop_token_ids=(), typical_p=0.9, banned_token_ids=(4,), bad_words=((6, 7), (8, 9), (1, 2, 3))
)


def masked_requests_write_the_same(subject: Subject, *, depths: Seq[int] = (2, 5)) -> None:
    """Under a constraint, greedy and seeded ids are plain decoding's, and every token is one that was allowed."""
    make = partial(EveryOther, subject.vocab_size)
    for params in (GREEDY, SEEDED, MASKED):
        batch = [replace(request, constraint=make) for request in requests(params)]
        wanted = [subject.oracle(request) for request in batch]
        for depth in depths:
            outcomes = run(subject.engine(depth=depth, verifier=Auto()), batch)
            for outcome, ids in zip(outcomes, wanted, strict=True):
                agrees(subject, outcome, ids, f"masked, k={depth}")
                require(follows(make(), outcome.seq.output), f"{subject.row.name}: a masked token was written")


def follows(constraint: EveryOther, output: Seq[int]) -> bool:
    """Whether every token of the output was allowed when it came."""
    for token in output:
        if not constraint.allowed([])[token]:
            return False
        constraint.advance(token)
    return True

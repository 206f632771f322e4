"""What the masks of one request may cost: processor time that the library takes in the thread that asks, the engine's.

A grammar whose every mask costs more than the last one would make all other texts wait: it ends its own request.
What a thread does between two calls is not charged. Within one, the machine itself may pause a thread (garbage that
Python collects, memory that the system moves): a single long call says nothing of a form, so a few are forgiven.
"""

from functools import partial
from time import thread_time
from typing import Any

from outdraft.options.errors import RequestError

CALL_SECONDS = 0.1  # of processor time, for one call of the library, as a mask is
PAUSE_TOKENS = 256  # of output, for each of which one longer call more is forgiven, and counted as `CALL_SECONDS`
REQUEST_SECONDS = 0.25  # for all calls of a request, however many texts it has, and ...
TOKEN_SECONDS = 0.01  # ... for each token of their output more
DEAR_SECONDS = 0.001  # of a mask, in the mean of those before: a guess needs one for each of its nodes
_SHARE = 0.25  # of the newest mask in that mean
_PAUSE = 3.0  # times as long as a dear one: no mask counts for more there, so that a pause makes none dear


class MaskBudget:
    """The account of one request."""

    def __init__(self) -> None:
        self._spent = self._longest = self._mask = 0.0
        self._num_tokens = self._num_long = 0

    def earn(self) -> None:
        """A token more has been written."""
        self._num_tokens += 1

    @property
    def is_dear(self) -> bool:
        """Whether masks take so long that guesses would hold up all others."""
        return self._mask > DEAR_SECONDS

    def charged(self, matcher: Any) -> "Charged":
        """The same matcher, on this account."""
        return Charged(matcher, self)

    def charge(self, seconds: float, *, is_mask: bool = False) -> None:
        """Count the processor time of one call, in seconds."""
        self._mask += _SHARE * (min(seconds, _PAUSE * DEAR_SECONDS) - self._mask) if is_mask else 0.0
        self._spent += min(seconds, CALL_SECONDS)
        self._longest = max(self._longest, seconds)
        self._num_long += seconds > CALL_SECONDS

    def check(self) -> None:
        """Raise `RequestError` once it is too much."""
        most = REQUEST_SECONDS + TOKEN_SECONDS * self._num_tokens
        if self._num_long > 1 + self._num_tokens // PAUSE_TOKENS:
            told = f"its masks took up to {1000 * self._longest:.0f} ms of processor time: {1000 * CALL_SECONDS:.0f} ms"
        elif self._spent > most:
            told = f"its masks took {self._spent:.2f} s of processor time: {most:.2f} s"
        else:
            return
        raise RequestError(
            f"structured_outputs: the form takes too much work behind {self._num_tokens} tokens of output; {told} are "
            "the most; make it simpler"
        )


class Charged:
    """A matcher of the library whose calls are charged."""

    def __init__(self, matcher: Any, budget: MaskBudget) -> None:
        self._matcher, self._budget = matcher, budget

    def __getattr__(self, name: str) -> Any:
        return partial(self._call, getattr(self._matcher, name), name == "compute_logit_bias")

    def _call(self, method: Any, is_mask: bool, *given: Any) -> Any:
        began = thread_time()
        try:
            return method(*given)
        finally:
            self._budget.charge(thread_time() - began, is_mask=is_mask)

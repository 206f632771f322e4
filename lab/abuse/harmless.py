"""Harmless requests that cost the server as much processor time as another one: ordinary texts, plainly asked for.

Their cost is measured beside the same neighbour: seconds of processor time for a text of so many tokens, whose slope
says how many tokens a given cost buys. Requests that write several texts are compared with as many ordinary ones at
once, which cost as much together.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from lab.abuse.ask import Asked
from lab.abuse.places import COMPLETIONS

MOST_TOKENS = 800
_PROBES = (8, 200)  # tokens


def plain(tokens: int) -> Asked:
    """An ordinary request."""
    body = {"prompt": "The letter came to her late", "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    return Asked.post(COMPLETIONS, body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Harmless:
    """Seconds of processor time of an ordinary text: `begin` and `token` times its tokens."""

    begin: float
    token: float

    def tokens(self, cpu: float, texts: int = 1) -> int:
        """Of each of so many texts, so that all of them cost `cpu` seconds; at least one, at most `MOST_TOKENS`."""
        wanted = (cpu / texts - self.begin) / self.token
        return max(1, min(MOST_TOKENS, round(wanted)))


async def calibrated(cost: Callable[[Asked], Awaitable[float]]) -> Harmless:
    """`cost`: the processor seconds of one request, beside the neighbour."""
    few, many = [min([await cost(plain(tokens)) for _ in range(3)]) for tokens in _PROBES]
    token = max(1e-6, (many - few) / (_PROBES[1] - _PROBES[0]))
    return Harmless(begin=max(0.0, few - token * _PROBES[0]), token=token)

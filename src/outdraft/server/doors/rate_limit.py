"""So many requests a minute for each key, or for each address where there are no keys: a bucket that fills steadily.

Every POST counts, whatever becomes of it behind this door; a request without its key does not come so far.
"""

from collections import OrderedDict
from collections.abc import Callable
from math import ceil
from time import monotonic

from starlette.types import ASGIApp, Receive, Scope, Send

from outdraft.server.connection import error_reply
from outdraft.server.errors import ApiError

_MOST_KNOWN = 10_000  # buckets; the one that was used longest ago is forgotten, and full when it comes again


class RateLimit:
    """`a_minute`: requests; None: any number. A full bucket holds a minute's."""

    def __init__(self, app: ASGIApp, a_minute: int | None, clock: Callable[[], float] = monotonic) -> None:
        self._app, self._most, self._clock = app, a_minute, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # who -> (left, when)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._most is not None and scope["method"] == "POST":
            wait = self._take(scope.get("outdraft.salt") or (scope.get("client") or ("", 0))[0], self._most)
            if wait:
                error = ApiError(
                    429,
                    f"more than {self._most} requests a minute: wait {wait} s",
                    code="rate_limit_exceeded",
                    headers={"Retry-After": str(wait)},
                )
                await error_reply(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _take(self, who: str, most: int) -> int:
        """Take one out of the bucket of `who`; returns the whole seconds after which there is one where it is empty."""
        now = self._clock()
        left, when = self._buckets.pop(who, (float(most), now))
        left = min(float(most), left + (now - when) * most / 60)
        taken = left >= 1
        self._buckets[who] = left - taken, now
        if len(self._buckets) > _MOST_KNOWN:
            self._buckets.popitem(last=False)
        return 0 if taken else ceil((1 - left) * 60 / most)

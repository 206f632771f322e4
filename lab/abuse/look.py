"""What one request does to others: sent again and again for a while, beside the neighbour, while the server is watched.

The processor time of a request is what the server spends beyond the neighbour's tokens, of which each costs what it
costs when the neighbour is alone.
"""

import asyncio
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from time import monotonic

from lab.abuse.ask import Asked, Reply, ask
from lab.abuse.neighbour import Neighbour
from lab.abuse.served import Served

_EVERY = 0.02  # seconds between two looks at the memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """`cpu`: seconds a request. `gaps`: the neighbour's, in seconds. `before`, `peak`, `after`: bytes of memory."""

    reply: Reply
    count: int
    cpu: float
    gaps: tuple[float, ...]
    before: int
    peak: int
    after: int

    @property
    def p99(self) -> float:
        """Seconds that one gap in a hundred exceeds."""
        return quantile(self.gaps, 0.99)

    @property
    def worst(self) -> float:
        return max(self.gaps, default=0.0)


def quantile(values: Seq[float], share: float) -> float:
    """The smallest value that at least such a share does not exceed; 0 of nothing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


class Watcher:
    """Looks at a server beside its neighbour."""

    def __init__(self, served: Served, neighbour: Neighbour) -> None:
        self._served, self._neighbour = served, neighbour
        self.a_token = 0.0  # processor seconds of one of the neighbour's tokens

    async def settle(self, seconds: float) -> tuple[float, ...]:
        """The neighbour alone; notes what its tokens cost. Its gaps."""
        mark, cpu = self._neighbour.mark(), self._served.cpu
        await asyncio.sleep(seconds)
        gaps = self._neighbour.gaps(mark)
        self.a_token = (self._served.cpu - cpu) / max(1, len(gaps))
        return tuple(gaps)

    async def look(self, asked: Seq[Asked], seconds: float, deadline: float) -> Seen:
        """All of `asked` at once, again and again until the time is over; the first one's last reply is noted."""
        mark, cpu, before = self._neighbour.mark(), self._served.cpu, self._served.resident
        peaks, count, end = [before], 0, monotonic() + seconds
        watching = asyncio.ensure_future(self._watch(peaks))
        reply = Reply(status=0, seconds=0.0)
        try:
            while monotonic() < end or not count:
                replies = await asyncio.gather(*(ask(self._served.address, one, deadline) for one in asked))
                reply = max(replies, key=lambda one: len(one.faults))
                count += 1
                if reply.is_late or not self._served.is_alive:
                    break
        finally:
            watching.cancel()
        gaps = self._neighbour.gaps(mark)
        spent = self._served.cpu - cpu if self._served.is_alive else 0.0
        after = self._served.resident
        return Seen(
            reply=reply,
            count=count,
            cpu=max(0.0, spent - self.a_token * len(gaps)) / count,
            gaps=tuple(gaps),
            before=before,
            peak=max(peaks),
            after=after,
        )

    async def after(self, before: int, most: int, patience: float) -> int:
        """Memory once it has fallen to `most` beyond `before`, or when the patience is over."""
        end = monotonic() + patience
        while (now := self._served.resident) > before + most and monotonic() < end:
            await asyncio.sleep(0.1)
        return now

    async def _watch(self, peaks: list[int]) -> None:
        while True:
            await asyncio.sleep(_EVERY)
            peaks.append(self._served.resident)

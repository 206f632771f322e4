"""Honest clients: each streams one ordinary text after another, compares it with plain decoding's, and notes its times.

A text is wrong if it is not the one that the model writes alone and plainly; it is lost if it does not come whole.
"""

import asyncio
import json
from dataclasses import dataclass, field
from random import Random
from time import monotonic
from typing import Any

from lab.abuse.look import quantile
from lab.abuse.target import Target
from lab.soak_http.asked import Kind, Written
from lab.soak_http.judge import StreamJudge, joined
from lab.soak_http.wire import BrokenError, Connection, StuckError, request

_MOST_TOLD = 20


@dataclass(slots=True)
class Served:
    """What honest clients got in one window. `firsts`: seconds to a first token."""

    firsts: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """As it stands in a record."""
        return {
            "texts": len(self.seconds),
            "wrong": len(self.wrong),
            "lost": len(self.lost),
            "faults": (self.wrong + self.lost)[:_MOST_TOLD],
            "p50_ms": round(quantile(self.firsts, 0.5) * 1e3, 1),
            "p99_ms": round(quantile(self.firsts, 0.99) * 1e3, 1),
            "firsts": [round(one, 4) for one in self.firsts],
        }


class Honest:
    """`count` clients over the targets in turn; between two texts each thinks for `thinks` seconds on average."""

    def __init__(
        self, targets: list[Target], kinds: list[Kind], rights: list[Written], *, count: int, thinks: float, seed: int
    ) -> None:
        self._targets, self._kinds, self._rights = targets, kinds, rights
        self._count, self._thinks = count, thinks
        self._dice = [Random(f"{seed} client {i}") for i in range(count)]

    async def window(self, seconds: float) -> Served:
        """What they get in so long a time; each ends the text that it has begun."""
        served, end = Served(), monotonic() + seconds
        await asyncio.gather(*(self._client(i, end, served) for i in range(self._count)))
        return served

    async def _client(self, index: int, end: float, served: Served) -> None:
        dice, target = self._dice[index], self._targets[index % len(self._targets)]
        while True:
            await asyncio.sleep(min(dice.expovariate(1 / self._thinks), max(0.0, end - monotonic())))
            if monotonic() >= end:
                return
            at = dice.randrange(len(self._kinds))
            try:
                await self._text(target, at, served)
            except (BrokenError, StuckError, OSError) as error:
                served.lost.append(f"{target.kind}, {self._kinds[at].name}: {error}")

    async def _text(self, target: Target, at: int, served: Served) -> None:
        kind, name = self._kinds[at], f"{target.kind}, {self._kinds[at].name}"
        began, first = monotonic(), None
        connection = await Connection.open(target.address)
        try:
            body = json.dumps({**kind.body, "stream": True}).encode()
            await connection.send(request("POST", kind.path, body, target.headers))
            head = await connection.head()
            if head.status != 200:
                served.lost.append(f"{name}: status {head.status}: {(await connection.body(head))[:200]!r}")
                return
            judge = StreamJudge(kind.count, is_chat=kind.is_chat)
            async for piece in connection.events(head):
                if first is None:
                    first = monotonic() - began
                judge.push(piece)
        finally:
            connection.close()
        if first is not None:
            served.firsts.append(first)
        served.seconds.append(monotonic() - began)
        if not judge.is_done or not all(judge.ended) or judge.error is not None:
            served.lost.append(f"{name}: it has no end: {str(judge.error)[:200]}")
        elif not _is_right(kind, judge, self._rights[at]):
            served.wrong.append(f"{name}: {joined(kind, judge)!s:.300}, right is {self._rights[at]!s:.300}")


def _is_right(kind: Kind, judge: StreamJudge, right: Written) -> bool:
    written = joined(kind, judge)
    same_ids = written.ids is None or right.ids is None or written.ids == right.ids
    return (written.texts, written.calls) == (right.texts, right.calls) and same_ids

"""The callers: each asks one request after another, looks at what comes, and notes what is wrong.

What becomes of request number i is a function of the seed and of i; when it is asked, and beside which others, is not.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from time import monotonic, perf_counter
from typing import Any

from lab.soak_http.asked import Kind, Written, right_of
from lab.soak_http.broken import broken
from lab.soak_http.judge import StreamJudge, begins, faults_of_error, faults_of_shape, joined
from lab.soak_http.wire import BrokenError, Connection, Head, StuckError, request

CALLERS = 48
_MOST_TOLD = 40  # faults that are printed on the way
PLANTED = ("raise", "infinite", "defect")
_HOWS = ("before the answer", "in the body", "in a stream", "in a stream", "in a stream", "whole")


@dataclass(slots=True)
class Tally:
    """What happened, and what should not have."""

    counts: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)  # bytes of the server, twenty times on the way
    files: list[int] = field(default_factory=list)


class Soak:
    """`rights`: what each kind must be answered. `slow_body`: seconds after which a body is refused; None: not tried.

    `planted`: the server breaks requests that ask for it (`soak_http/server.py`).
    """

    def __init__(
        self,
        address: str,
        kinds: list[Kind],
        rights: list[Written],
        *,
        seed: int = 0,
        slow_body: float | None = None,
        planted: bool = False,
    ) -> None:
        self.tally = Tally()
        self._address, self._kinds, self._rights, self._seed = address, kinds, rights, seed
        self._slow_body, self._planted = slow_body, planted
        self._stall = -1e9  # when this process last stood still, as one that is paused does

    async def run(
        self,
        count: int,
        tell: Callable[[str], None] = lambda line: None,
        measure: Callable[[], tuple[int, int]] = lambda: (0, 0),
        callers: int = CALLERS,
    ) -> Tally:
        """Ask `count` times. `measure`: memory and open files of the server."""
        numbers, began, told = iter(range(count)), perf_counter(), [0]

        async def call() -> None:
            kept: Connection | None = None
            for number in numbers:
                kept = await self._ask(number, kept)
                if number % max(1, count // 20) == 0:
                    memory, files = measure()
                    self.tally.memory.append(memory)
                    self.tally.files.append(files)
                    spent = perf_counter() - began
                    tell(
                        f"{number} of {count} after {spent:.0f} s: {memory >> 20} MiB, {files} files, "
                        f"{len(self.tally.wrong)} wrong"
                    )
                    for one in self.tally.wrong[told[0] : _MOST_TOLD]:
                        tell(f"WRONG {one}")
                    told[0] = len(self.tally.wrong)
            if kept is not None:
                kept.close()

        pulse = asyncio.ensure_future(self._pulse())
        await asyncio.gather(*(call() for _ in range(callers)))
        pulse.cancel()
        with suppress(asyncio.CancelledError):
            await pulse
        return self.tally

    async def _pulse(self) -> None:
        while True:
            before = monotonic()
            await asyncio.sleep(0.5)
            if monotonic() - before > 2:
                self._stall = monotonic()

    async def _ask(self, number: int, kept: Connection | None) -> Connection | None:
        """One request; returns the connection if it may serve another one."""
        rng = Random(f"{self._seed}/{number}")
        begins_anew = rng.random() < 0.3  # drawn in any case: what follows must not depend on the connections
        if kept is not None and begins_anew:
            kept.close()
            kept = None
        connection, used = kept, kept is not None
        try:
            connection = connection or await Connection.open(self._address)
            try:
                await self._act(rng, number, connection)
            except BrokenError:
                if not used:
                    raise
                connection = await Connection.open(self._address)  # it was closed while unused
                await self._act(Random(f"{self._seed}/{number}/again"), number, connection)
        except (BrokenError, StuckError) as error:
            self.tally.wrong.append(f"request {number}: {error}")
            if connection is not None:
                connection.close()
            return None
        except Exception as error:  # the answer was not of the form that is read here
            self.tally.wrong.append(f"request {number}: its answer could not be read: {error!r:.200}")
            if connection is not None:
                connection.close()
            return None
        if connection.may_go_on:
            return connection
        connection.close()
        return None

    async def _act(self, rng: Random, number: int, connection: Connection) -> None:
        fate = rng.random()
        if fate < 0.30:
            await self._leaves(rng, number, connection)
        elif fate < 0.44:
            await self._breaks(rng, number, connection)
        elif fate < 0.48 and self._planted:
            await self._is_broken(rng, number, connection)
        elif fate < 0.485 and self._slow_body is not None:
            await self._never_ends(number, connection)
        elif fate < 0.50:
            await self._whole(rng, number, connection, slowly=True)
        elif fate < 0.53:
            await self._in_time(rng, number, connection)
        else:
            await self._whole(rng, number, connection)

    def _body(self, rng: Random, kind: Kind, **more: Any) -> bytes:
        drawn = rng.choice(({}, {}, {"speculative": False}, {"speculative": {"num_speculative_tokens": 2}}))
        return json.dumps({**kind.body, **drawn, **more}, ensure_ascii=rng.random() < 0.5).encode()

    async def _leaves(self, rng: Random, number: int, connection: Connection) -> None:
        """A client that goes away: before it is answered, in the middle of its body, in the middle of a stream."""
        at = rng.randrange(len(self._kinds))
        kind, how = self._kinds[at], rng.choice(_HOWS)
        sent = request("POST", kind.path, self._body(rng, kind, stream=how == "in a stream"))
        if how == "in the body":
            await connection.send(sent[: -rng.randrange(1, 40)])
        else:
            await connection.send(sent)
        if how in ("before the answer", "whole"):
            await asyncio.sleep(rng.choice((0, 0.001, 0.02, 0.2)) if how == "whole" else 0)
        elif how == "in a stream":
            head = await connection.head()
            if head.status != 200:
                await self._refused(number, head, await connection.body(head), (503,))
                return
            judge, last = StreamJudge(kind.count, is_chat=kind.is_chat), rng.randrange(1, 7)
            async for piece in connection.events(head):
                judge.push(piece)
                last -= 1
                if last <= 0:
                    break
            self._compare_beginning(number, at, judge)
        self.tally.counts[f"cancelled {how}"] += 1
        connection.close(rudely=rng.random() < 0.5)
        connection.may_go_on = False

    async def _breaks(self, rng: Random, number: int, connection: Connection) -> None:
        asked = broken(rng, self._kinds)
        sending = asyncio.ensure_future(connection.send(asked.data, parts=rng.choice((1, 1, 3))))
        head = await connection.head()  # an answer may come before all is sent
        body = b"" if asked.data.startswith(b"HEAD") else await connection.body(head)
        await sending
        self.tally.counts[f"broken: {asked.name}"] += 1
        if head.status < 400 or asked.data.startswith(b"HEAD"):
            self.tally.statuses[head.status] += 1
            connection.may_go_on = False
            if head.status not in asked.statuses:
                self.tally.wrong.append(f"request {number} ({asked.name}) is answered with {head.status}")
            return
        await self._refused(number, head, body, (*asked.statuses, 503), asked.name)

    async def _is_broken(self, rng: Random, number: int, connection: Connection) -> None:
        """It asks for a fault; no other request may notice."""
        at, fault = rng.randrange(len(self._kinds)), rng.choice(PLANTED)
        kind, streams = self._kinds[at], rng.random() < 0.5
        table = {**kind.body, "metadata": {"soak": fault}, "stream": streams}
        await connection.send(request("POST", kind.path, json.dumps(table).encode()))
        head = await connection.head()
        self.tally.counts[f"planted: {fault}"] += 1
        has_failed = True
        if head.status != 200:
            await self._refused(number, head, await connection.body(head), (500, 503, 400))
        elif streams:
            judge = StreamJudge(kind.count, is_chat=kind.is_chat)
            async for piece in connection.events(head):
                judge.push(piece)
            self.tally.statuses[200] += 1
            self._compare_beginning(number, at, judge)
            has_failed = judge.error is not None
            if judge.error is not None:
                self.tally.counts["errors in streams"] += 1
                self.tally.wrong += [f"request {number}: {one}" for one in faults_of_shape(judge.error)]
            elif not all(judge.ended):
                self.tally.wrong.append(f"request {number}: a stream ends without an end or an error")
        else:
            has_failed = False
            self._compare(number, at, right_of(kind, json.loads(await connection.body(head))))
        self.tally.counts[f"planted, and failed: {fault}"] += has_failed
        if fault != "raise" and not has_failed:  # that one comes at the third token: a text may be over before
            self.tally.wrong.append(f"request {number} ({kind.name}) asked for the fault {fault!r} and was answered")

    async def _never_ends(self, number: int, connection: Connection) -> None:
        """A body that stops coming is refused."""
        kind = self._kinds[0]
        await connection.send(request("POST", kind.path, json.dumps(kind.body).encode())[:-9])
        head = await connection.head()
        self.tally.counts["a body that never ends"] += 1
        await self._refused(number, head, await connection.body(head), (408,))

    async def _in_time(self, rng: Random, number: int, connection: Connection) -> None:
        """With a deadline; the text ends with what it has."""
        at = rng.randrange(len(self._kinds))
        kind = self._kinds[at]
        body = self._body(rng, kind, timeout=rng.choice((0.001, 0.05, 0.3)))
        await connection.send(request("POST", kind.path, body))
        head = await connection.head()
        told = await connection.body(head)
        if head.status != 200:
            await self._refused(number, head, told, (503,))
            return
        self.tally.statuses[200] += 1
        reply = json.loads(told)
        is_cut = any(one["stop_reason"] == "timeout" for one in reply["choices"])
        self.tally.counts["out of time" if is_cut else "in time"] += 1
        written = right_of(kind, reply)
        if not is_cut:
            self._compare(number, at, written)
        elif not begins(written, self._rights[at]) and not any(self._rights[at].calls):
            self.tally.wrong.append(f"request {number} ({kind.name}), cut: {written.texts!r:.200}")

    async def _whole(self, rng: Random, number: int, connection: Connection, *, slowly: bool = False) -> None:
        at, streams = rng.randrange(len(self._kinds)), rng.random() < 0.5
        kind = self._kinds[at]
        sent = request("POST", kind.path, self._body(rng, kind, stream=streams))
        await connection.send(sent, parts=rng.choice((2, 5)) if slowly else 1, pause=0.1 if slowly else 0)
        head = await connection.head()
        if head.status != 200:
            await self._refused(number, head, await connection.body(head), (503,))
            return
        self.tally.statuses[200] += 1
        self.tally.counts["slow" if slowly else "streamed" if streams else "whole"] += 1
        if not streams:
            self._compare(number, at, right_of(kind, json.loads(await connection.body(head))))
            return
        judge = StreamJudge(kind.count, is_chat=kind.is_chat)
        async for piece in connection.events(head):
            judge.push(piece)
            if slowly:
                await asyncio.sleep(0.02)
        self.tally.wrong += [f"request {number}: {one}" for one in judge.faults]
        if not judge.is_done or not all(judge.ended) or judge.error is not None:
            self.tally.wrong.append(f"request {number} ({kind.name}): a stream has no end: {judge.error}")
        self._compare(number, at, joined(kind, judge))

    async def _refused(self, number: int, head: Head, body: bytes, statuses: tuple[int, ...], name: str = "") -> None:
        """An answer that is an error: of which status, and in which words."""
        self.tally.statuses[head.status] += 1
        if head.status == 408 and 408 not in statuses and monotonic() - self._stall < 60:
            self.tally.counts["refused because this process stood still"] += 1
        elif head.status not in statuses:
            self.tally.wrong.append(f"request {number} ({name}) is answered with {head.status}: {body[:300]!r}")
        self.tally.wrong += [
            f"request {number} ({name}): {one}"
            for one in faults_of_error(head.status, head.headers.get("content-type", ""), body)
        ]
        if head.status in (429, 503) and "retry-after" not in head.headers:
            self.tally.wrong.append(f"request {number}: status {head.status} without Retry-After")

    def _compare(self, number: int, at: int, written: Written) -> None:
        right = self._rights[at]
        same_ids = written.ids is None or right.ids is None or written.ids == right.ids
        if (written.texts, written.calls) != (right.texts, right.calls) or not same_ids:
            self.tally.wrong.append(
                f"request {number} ({self._kinds[at].name}) wrote {str(written)[:300]}, right is {str(right)[:300]}"
            )

    def _compare_beginning(self, number: int, at: int, judge: StreamJudge) -> None:
        self.tally.wrong += [f"request {number}: {one}" for one in judge.faults]
        written = joined(self._kinds[at], judge)
        if not begins(written, self._rights[at]):
            self.tally.wrong.append(
                f"request {number} ({self._kinds[at].name}) began {str(written)[:300]}, right is "
                f"{str(self._rights[at])[:300]}"
            )

"""The texts of one or more prompts while they are written, for a caller in asyncio: the server, `astream`, `agenerate`.

    answers = await llm.open(prompts, params)
    async for place, chunk in answers: ...        each piece as it comes, those of several texts in turn
    answers.results()                             what was written, one for each prompt
    answers.leave()                               cancels what is unfinished

No text waits for another one's piece: all of them wake the same event.
"""

import asyncio
from collections.abc import AsyncIterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest

from outdraft.core.one_process import OneProcess
from outdraft.core.request import Request
from outdraft.engine.callers.call import Call
from outdraft.engine.callers.prompts import Prompt, gathered
from outdraft.engine.callers.result import Chunk, Result
from outdraft.engine.callers.thread import EngineThread
from outdraft.options.errors import BusyError, OutdraftError

_MUCH = 1 << 11  # tokens, which take some milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which text a piece belongs to."""

    prompt: int  # among the prompts that were asked together
    index: int  # among the texts of that prompt (`SamplingParams(n=3)`)


class Answers(OneProcess):
    """Queues its requests when it is made, in any thread. Raises what refuses one of them.

    `loop`: where the caller waits. `asked_at`: when the caller asked, by the engine's clock. `stream_interval`: tokens
    of a piece; 0: a pass's.
    """

    def __init__(
        self,
        thread: EngineThread,
        requests: Seq[Request],
        prompts: Seq[Prompt],
        *,
        loop: asyncio.AbstractEventLoop,
        streams: bool,
        asked_at: float,
        stream_interval: int = 0,
    ) -> None:
        self.requests, self._prompts = tuple(requests), prompts
        self._arrived = asyncio.Event()
        self._places = [Place(prompt=i, index=j) for i, one in enumerate(requests) for j in range(one.params.n)]
        self._calls: list[Call] = thread.submit(
            [single for request in requests for single in request.singles()],
            streams=streams,
            stream_interval=stream_interval,
            asked_at=asked_at,
            together=True,
            wake=partial(loop.call_soon_threadsafe, self._arrived.set),
        )

    async def __aiter__(self) -> AsyncIterator[tuple[Place, Chunk]]:
        """Every piece, until all texts are over."""
        is_over = False
        while not is_over:
            self._arrived.clear()
            for call in self._calls:
                call.read()
            is_over = all(call.finished for call in self._calls)
            found = [
                piece
                for in_turn in zip_longest(*(self._new_pieces(i) for i in range(len(self._calls))))
                for piece in in_turn
                if piece is not None
            ]
            for piece in found:
                yield piece
            if not found and not is_over:
                await self._arrived.wait()

    def _new_pieces(self, i: int) -> list[tuple[Place, Chunk]]:
        place = self._places[i]
        return [(place, replace(chunk, index=place.index)) for chunk in self._calls[i].take()]

    async def joined(self) -> None:
        """Of a stream: wait until the engine has taken the requests, which it does between two passes.

        Raises `BusyError` where it has no room for all of them.
        """
        try:
            while not all(call.is_answered for call in self._calls):
                await self._arrived.wait()
                self._arrived.clear()
                for call in self._calls:
                    call.read()
            if isinstance(self.error, BusyError):
                raise self.error
        except BaseException:
            self.leave()
            raise

    async def end(self) -> None:
        """Wait until all texts are over; their pieces are left out. Much at once is read beside the event loop."""
        while not all(call.finished for call in self._calls):
            await self._arrived.wait()
            self._arrived.clear()
            if sum(call.num_unread for call in self._calls) < _MUCH:
                self._read()
            else:
                await asyncio.to_thread(self._read)

    @property
    def num_written(self) -> int:
        """Tokens of all texts that were read so far."""
        return sum(call.writer.num_ids for call in self._calls)

    @property
    def error(self) -> OutdraftError | None:
        """The error of the first text that ended with one."""
        return next((call.writer.error for call in self._calls if call.writer.error is not None), None)

    def raise_error(self) -> None:
        """Raise the error of the first text that ended with one, if any did."""
        if (error := self.error) is not None:
            raise error

    def results(self) -> list[Result]:
        """What has been written so far, one for each prompt."""
        return gathered(self.requests, [call.writer.result() for call in self._calls], self._prompts)

    def _read(self) -> None:
        for call in self._calls:
            call.read()
            call.take()

    def leave(self) -> None:
        """Nothing more is wanted: what is unfinished is cancelled. May be called more than once, from anywhere."""
        for call in self._calls:
            call.leave()

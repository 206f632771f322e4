"""Texts while they are written, and from asyncio: `stream`, `astream`, `agenerate`. Their requests join the one batch.

Of several texts of one prompt (`SamplingParams(n=3)`) the pieces come as they are written, and each says whose it is.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from collections.abc import Sequence as Seq
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from typing import Any

from outdraft.engine.callers.answers import Answers
from outdraft.engine.callers.call import take_from
from outdraft.engine.callers.conversational import Conversational
from outdraft.engine.callers.prompts import Prompt
from outdraft.engine.callers.result import Chunk, Result
from outdraft.options.checked import check_value
from outdraft.options.errors import RequestError
from outdraft.options.params import SamplingParams


class Streaming(Conversational):
    """What `LLM` adds to `generate` and `chat` for callers who do not wait for the end."""

    def stream(
        self, prompt: Prompt, params: SamplingParams | None = None, *, stream_interval: int = 0, **per_request: Any
    ) -> Iterator[Chunk]:
        """Complete one prompt piece by piece. Leaving the loop cancels the request.

        With `n` above 1: the pieces of all texts, in turn; `chunk.index` says whose each is. `stream_interval`: how
        many tokens a piece has (the last one may have fewer), whatever each pass writes; 0: what a pass writes.
        """
        asked_at, interval = self.engine.clock(), _checked(stream_interval)
        (request,) = self._prompts.requests([prompt], params, per_request)
        arrived: SimpleQueue[None] = SimpleQueue()  # an entry for whatever comes, of any text
        calls = self._thread.submit(
            request.singles(),
            streams=True,
            stream_interval=interval,
            asked_at=asked_at,
            wake=partial(arrived.put, None),
        )
        try:
            while not all(call.finished for call in calls):
                take_from(arrived)
                for index, call in enumerate(calls):
                    call.read()
                    for chunk in call.take():
                        yield replace(chunk, index=index) if index else chunk
            for call in calls:
                call.raise_error()
        finally:
            for call in calls:
                call.leave()

    async def open(
        self,
        prompts: Seq[Prompt],
        params: SamplingParams | Seq[SamplingParams] | None = None,
        *,
        streams: bool = True,
        stream_interval: int = 0,
        **per_request: Any,
    ) -> Answers:
        """Ask for all of these prompts at once, from asyncio; what comes back is `Answers`, to be read and to be left.

        `streams=False`: the caller is not woken before a text is whole. `stream_interval`: as for `stream`.
        Raises `RequestError` for what is refused, and `BusyError` for a stream that finds no room.
        """
        asked_at, interval = self.engine.clock(), _checked(stream_interval)
        loop = asyncio.get_running_loop()

        def begin() -> Answers:
            requests = self._prompts.requests(prompts, params, per_request)
            return Answers(
                self._thread, requests, prompts, loop=loop, streams=streams, stream_interval=interval, asked_at=asked_at
            )

        answers = await asyncio.to_thread(begin)  # to tokenize, and to check what is long, may last
        if streams:
            await answers.joined()
        return answers

    async def agenerate(self, prompt: Prompt, params: SamplingParams | None = None, **per_request: Any) -> Result:
        """`generate` for one prompt; concurrent calls share the batch."""
        answers = await self.open([prompt], params, streams=False, **per_request)
        try:
            await answers.end()
        finally:
            answers.leave()
        answers.raise_error()
        return answers.results()[0]

    async def astream(
        self, prompt: Prompt, params: SamplingParams | None = None, **per_request: Any
    ) -> AsyncIterator[Chunk]:
        """`stream`; concurrent calls share the batch."""
        answers = await self.open([prompt], params, **per_request)
        try:
            async for _, chunk in answers:
                yield chunk
            answers.raise_error()
        finally:
            answers.leave()


def _checked(stream_interval: Any) -> int:
    interval: int = check_value("stream_interval", stream_interval, int, error=RequestError)
    if interval < 0:
        raise RequestError(f"stream_interval={interval}: give a number of tokens, or 0 for what each pass writes")
    return interval

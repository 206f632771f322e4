"""What the endpoints that write text have in common: queue the request, then one reply, or a stream of pieces.

Shape.whole(results)    the body of a whole reply
Shape.events(answers)   the pieces of a stream, as bytes
"""

from collections.abc import AsyncIterator, Callable
from collections.abc import Sequence as Seq
from dataclasses import asdict
from functools import partial
from time import time
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response

from outdraft.engine.callers.answers import Answers
from outdraft.engine.callers.prompts import Prompt
from outdraft.engine.callers.result import Chunk, Result
from outdraft.options.params import SamplingParams
from outdraft.server.connection import EventStream, unless_gone
from outdraft.server.doors.request_log import ANSWERS
from outdraft.server.errors import ApiError
from outdraft.server.form_errors import told_by_field
from outdraft.server.replies import JsonReply
from outdraft.server.schema.sampling import SamplingFields
from outdraft.server.service import Service, new_id
from outdraft.server.wire.usage import count_usage, metrics, usage


class Shape(Protocol):
    """How an endpoint writes what the engine wrote."""

    def whole(self, results: list[Result]) -> dict[str, Any]:
        """The body of a reply."""
        ...

    def events(self, answers: Answers) -> AsyncIterator[bytes]:
        """The events of a stream."""
        ...


async def answer(
    request: Request, service: Service, body: SamplingFields, prompts: Seq[Prompt], params: SamplingParams, shape: Shape
) -> Response:
    """The reply to a request, in whichever way it was asked for. Raises what refuses it."""
    _check_stream(body)
    with told_by_field(body):
        answers = await service.open(body, prompts, params, request.scope.get("outdraft.salt", ""))
    request.scope[ANSWERS] = answers
    close = partial(service.close, answers)
    if body.stream:
        return EventStream(shape.events(answers), close=close, keep_alive=service.settings.keep_alive)
    try:
        await unless_gone(request, answers.end())
        answers.raise_error()
        return JsonReply(shape.whole(answers.results()))
    finally:
        close()


def _check_stream(body: SamplingFields) -> None:
    if body.stream_options is not None and not body.stream:
        raise ApiError(400, "stream_options is for a stream: send stream: true, or leave it out",
                       param="stream_options")  # fmt: skip


class Heading:
    """What stands at the head of every reply and chunk, and at their foot: id, time, model; usage and statistics."""

    def __init__(self, service: Service, body: SamplingFields, prefix: str, *, writes: bool = True) -> None:
        """`writes`: tokens that the engine has written are shown, and count."""
        self.id = f"{prefix}{body.request_id}" if body.request_id else new_id(prefix)
        self.created, self.model = int(time()), body.model or service.name
        self._service = service
        self._options, self._writes = body.stream_options, writes
        self._written = self._prompt = 0

    def head(self, kind: str) -> dict[str, Any]:
        """`kind`: OpenAI's name of the object."""
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def foot(self, results: list[Result], num_reasoning_tokens: int = 0) -> dict[str, Any]:
        """Usage, statistics, and what was decided for the request."""
        told = results[0].speculative
        return {
            "usage": usage(results, num_reasoning_tokens, writes=self._writes),
            "metrics": metrics(results[0].outputs, told.num_speculative_tokens or 0) if len(results) == 1 else None,
            "speculative": {**asdict(told), "methods": self._service.speculation["methods"]},
        }

    def piece_usage(self, answers: Answers, chunk: Chunk) -> dict[str, Any]:
        """What a chunk says of usage: nothing, null, or the count so far."""
        if self._options is None or not (self._options.include_usage or self._options.continuous_usage_stats):
            return {}
        self._written += len(chunk.token_ids) if self._writes else 0
        self._prompt = self._prompt or sum(len(one.prompt_token_ids) for one in answers.requests)
        wanted = self._options.continuous_usage_stats
        return {"usage": count_usage(self._prompt, self._written, 0, 0, 0) if wanted else None}

    def last(
        self, kind: str, answers: Answers, count: Callable[[list[Result]], int] = lambda _: 0
    ) -> dict[str, Any] | None:
        """The chunk after the text, if one was asked for. `count`: of tokens that were a thought."""
        if self._options is None or not self._options.include_usage:
            return None
        results = answers.results()
        return {**self.head(kind), "choices": [], **self.foot(results, count(results))}


def reason(chunk: Chunk | Result) -> tuple[str | None, str | int | None]:
    """finish_reason in OpenAI's words, and stop_reason: what stopped it, or that its time was over."""
    if chunk.finish_reason == "timeout":
        return "length", "timeout"
    return chunk.finish_reason, chunk.stop_reason

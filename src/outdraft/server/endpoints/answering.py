"""What the endpoints that write text have in common: queue the request, then one reply, or a stream of pieces."""

from collections.abc import AsyncIterator, Iterator
from collections.abc import Sequence as Seq
from dataclasses import asdict, fields
from functools import partial
from time import time
from typing import Any, ClassVar

from starlette.requests import Request
from starlette.responses import Response

from outdraft.engine.callers.answers import Answers, Place
from outdraft.engine.callers.prompts import Prompt
from outdraft.engine.callers.result import Chunk, Result
from outdraft.options.errors import RequestError
from outdraft.options.params import SamplingParams
from outdraft.server.connection import DONE, EventStream, JsonReply, event, unless_gone
from outdraft.server.doors.request_log import ANSWERS
from outdraft.server.errors import renamed, told, wrong_field
from outdraft.server.schema.sampling import SamplingFields
from outdraft.server.service import Service, new_id
from outdraft.server.wire.tokens import TokensTold, draft_tree
from outdraft.server.wire.usage import count_usage, metrics, usage


async def answer(request: Request, shape: "ReplyShape", prompts: Seq[Prompt], params: SamplingParams) -> Response:
    """The reply to a request, in whichever way it was asked for. Raises what refuses it."""
    service, body = shape.service, shape.body
    if body.stream_options is not None and not body.stream:
        raise wrong_field("stream_options is for a stream: send stream: true, or leave it out")
    try:
        with body.told_by_field():
            answers = await service.open(body, prompts, params, request.scope.get("outdraft.salt", ""))
    except RequestError as error:
        raise renamed(told(error), {"^prompt$": body.prompt_field}) from error
    request.scope[ANSWERS] = answers
    close = partial(service.close, answers)
    if body.stream:
        return EventStream(shape.events(answers), close=close, keep_alive=service.settings.keep_alive)
    try:
        await unless_gone(request, answers.end())
        answers.raise_error()
        return await service.reading.write(shape.size(answers), lambda: JsonReply(shape.whole(answers.results())))
    finally:
        close()


class ReplyShape:
    """How an endpoint writes what the engine wrote.

    Every reply has a head (id, time, model) and a foot (usage and statistics); a stream ends with [DONE].
    """

    kind: ClassVar[str] = ""  # OpenAI's name of a reply
    piece_kind: ClassVar[str] = ""  # and of a piece
    echoes = False  # every text of a whole reply has its prompt before it

    def __init__(self, service: Service, body: SamplingFields, prefix: str, *, writes: bool = True) -> None:
        """`prefix`: of the id. `writes`: tokens that the engine has written are shown, and count."""
        self.id = f"{prefix}{body.request_id}" if body.request_id else new_id(prefix)
        self.created, self.model = int(time()), body.model or service.name
        self.service, self.body, self.writes = service, body, writes
        self._options = body.stream_options
        self._tokens = TokensTold(service.llm.tokenizer)
        self._num_written = self._num_read = 0  # tokens

    def whole(self, results: list[Result]) -> dict[str, Any]:
        """The body of a reply."""
        raise NotImplementedError  # each subclass says it

    async def events(self, answers: Answers) -> AsyncIterator[bytes]:
        for first in self.begin(answers):
            yield event(first)
        async for place, chunk in answers:
            size = self.size(answers, chunk)
            if (told := await self.service.reading.write(size, self._event, answers, place, chunk)) is not None:
                yield told
        answers.raise_error()
        if self._options is not None and self._options.include_usage:
            yield event({**self.head(self.piece_kind), "choices": [], **self.foot(answers.results())})
        yield DONE

    def _event(self, answers: Answers, place: Place, chunk: Chunk) -> bytes | None:
        piece = self.piece(answers, place, chunk)
        return None if piece is None else event(piece)

    def size(self, answers: Answers, chunk: Chunk | None = None) -> int:
        """Tokens and log probabilities of a piece, or of the whole reply."""
        params = answers.requests[0].params
        if chunk is not None:
            written, read = len(chunk.token_ids), len(chunk.prompt_logprobs or ())
        else:
            shows = self.echoes or params.prompt_logprobs is not None
            written = answers.num_written
            read = sum(len(one.prompt_token_ids) for one in answers.requests) * params.n if shows else 0
        return written * (1 + (params.logprobs or 0)) + read * (1 + (params.prompt_logprobs or 0))

    def begin(self, answers: Answers) -> Iterator[dict[str, Any]]:
        """The events before anything is written."""
        yield from ()

    def piece(self, answers: Answers, place: Place, chunk: Chunk) -> dict[str, Any] | None:
        """The event of a chunk; None: it says nothing that a client may know yet."""
        raise NotImplementedError  # each subclass says it

    def num_reasoning_tokens(self, results: list[Result]) -> int:
        """Tokens of thoughts."""
        return 0

    def tokens_told(self, text: Chunk | Result, index: int) -> dict[str, Any]:
        """Its tokens, and the draft of its last round, where the request asks for them. `index`: among all texts."""
        told = self._tokens.of(text, index) if self.body.return_token_ids else {}
        if self.body.return_draft_tree:
            told["draft_tree"] = draft_tree(text.draft_tree, self.service.llm.tokenizer)
        return told

    def head(self, kind: str) -> dict[str, Any]:
        """What every reply and piece begins with."""
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def foot(self, results: list[Result]) -> dict[str, Any]:
        """Usage, statistics, and what was decided for the request."""
        told = results[0].speculative
        return {
            "usage": usage(results, self.num_reasoning_tokens(results), writes=self.writes),
            "metrics": metrics(results[0].outputs, told.num_speculative_tokens or 0) if len(results) == 1 else None,
            "speculative": {**asdict(told), "methods": self.service.speculation["methods"]},
        }

    def told(self, answers: Answers, chunk: Chunk, choice: dict[str, Any], **more: Any) -> dict[str, Any]:
        """The event of a piece: its choice, what is said beside that, and the usage."""
        usage = self.piece_usage(answers, chunk)
        return {**self.head(self.piece_kind), "choices": [choice], **more, **usage}

    def piece_usage(self, answers: Answers, chunk: Chunk) -> dict[str, Any]:
        """What a chunk says of usage: nothing, null, or the count so far."""
        if self._options is None or not (self._options.include_usage or self._options.continuous_usage_stats):
            return {}
        self._num_written += len(chunk.token_ids) if self.writes else 0
        self._num_read = self._num_read or sum(len(one.prompt_token_ids) for one in answers.requests)
        wanted = self._options.continuous_usage_stats
        return {"usage": count_usage(self._num_read, self._num_written, 0, 0, 0) if wanted else None}


def as_chunk(text: Result, **more: Any) -> Chunk:
    """All of a text as one piece. `more`: fields of it that are to differ."""
    alike = {one.name: getattr(text, one.name) for one in fields(Chunk) if hasattr(text, one.name)}
    return Chunk(**{**alike, "logprobs": text.logprobs or (), **more})


def reason(chunk: Chunk | Result) -> tuple[str | None, str | int | None]:
    """finish_reason in OpenAI's words, and stop_reason: what stopped it, or that its time was over."""
    if chunk.finish_reason == "timeout":
        return "length", "timeout"
    return chunk.finish_reason, chunk.stop_reason

"""`POST /v1/responses`: https://platform.openai.com/docs/api-reference/responses-streaming

It is a chat in other words: the conversation, the parsers and the grammar are the chat's. Nothing is stored. A stream
ends with the event that holds the whole response; there is no [DONE].
"""

from collections.abc import AsyncIterator, Iterator
from itertools import count
from time import time
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from outdraft.core.logprobs import TokenLogprobs
from outdraft.engine.callers.answers import Answers
from outdraft.engine.callers.result import Chunk, Result
from outdraft.options.errors import OutdraftError
from outdraft.server.connection import event
from outdraft.server.conversation import Conversation, converse
from outdraft.server.doors.body_limit import SIZE
from outdraft.server.endpoints.answering import ReplyShape, answer, as_chunk, reason
from outdraft.server.errors import ApiError, broke_off, renamed, told
from outdraft.server.schema.chat import ChatRequest
from outdraft.server.schema.responses import LOGPROBS, SEALED, ResponsesRequest
from outdraft.server.service import Service
from outdraft.server.wire.logprobs import of_chat
from outdraft.server.wire.response_items import Event, Logprobs, ResponseItems
from outdraft.server.wire.tokens import ByToken

_CALLED = {  # as a chat says it -> as it is said here
    r"\bmax(_completion)?_tokens\b": "max_output_tokens",
    r"(?<!\.)\breasoning_effort\b": "reasoning.effort",
    r"\bresponse_format\b": "text.format",
    r"^messages\b": "input",
    r"^(tools\.\d+)\.function\b": r"\1",
}
_SAME = ("instructions", "max_output_tokens", "temperature", "top_p", "user", "safety_identifier", "prompt_cache_key")


def add(app: FastAPI, service: Service) -> None:
    """Add this route to the app."""

    @app.post("/v1/responses", tags=["text"], summary="Answer a conversation, event by event")
    async def respond(body: ResponsesRequest, request: Request) -> Response:
        try:
            chat = body.chat()
            asked = await service.reading.read(request.scope.get(SIZE, 0), converse, service, chat)
            return await answer(request, Responding(service, body, chat, asked), [asked.prompt], asked.params)
        except (ApiError, OutdraftError) as error:
            raise renamed(told(error), _CALLED) from error


class Responding(ReplyShape):
    """The shape of its replies."""

    def __init__(self, service: Service, body: ResponsesRequest, chat: ChatRequest, asked: Conversation) -> None:
        super().__init__(service, chat, "resp_")
        self._body, self._asked = body, asked
        self._reader, self._thoughts = asked.reader(), asked.thoughts()
        self._items = ResponseItems(seals=body.wants(SEALED))
        self._by_token = ByToken(service.codec)
        self._waiting: list[TokenLogprobs | None] = []  # of tokens that may be the beginning of a thought

    def whole(self, results: list[Result]) -> dict[str, Any]:
        (text,) = results
        for _ in self._written(as_chunk(text)):
            pass
        return self._ended(results)

    async def events(self, answers: Answers) -> AsyncIterator[bytes]:
        numbers = count()

        def numbered(told: Event) -> bytes:
            return event({**told, "sequence_number": next(numbers)}, told["type"])

        begun = self._response("in_progress")
        for kind in ("response.created", "response.in_progress"):
            yield numbered({"type": kind, "response": begun})
        try:
            async for _, chunk in answers:
                for one in self._written(chunk):
                    yield numbered(one)
            answers.raise_error()
            ended = self._ended(answers.results())
        except Exception as error:  # the status has been sent, so the last two events report it
            found = broke_off(error).body["error"]
            for one in self._items.close("incomplete"):
                yield numbered(one)
            yield numbered({"type": "error", **{name: found[name] for name in ("code", "message", "param")}})
            ended = self._response("failed", error={**found, "code": "server_error"})  # a response has no other code
        yield numbered({"type": f"response.{ended['status']}", "response": ended})

    def num_reasoning_tokens(self, results: list[Result]) -> int:
        return self._asked.num_reasoning_tokens(results)

    def _written(self, chunk: Chunk) -> Iterator[Event]:
        for piece in self._by_token.push(chunk) if self._body.wants(LOGPROBS) else (chunk,):
            is_last = piece.finish_reason is not None
            said = self._reader.push(piece.text, piece.token_ids, final=is_last)
            yield from self._items.push(said, self._logprobs(piece))
            if is_last:
                yield from self._items.finish(_status(piece))

    def _ended(self, results: list[Result]) -> dict[str, Any]:
        (text,) = results
        foot = self.foot(results)
        foot["usage"] = _usage(foot["usage"])
        why, status = None, _status(text)
        if status == "incomplete":
            _, stopped = reason(text)
            why = {"reason": "max_output_tokens", **({} if stopped is None else {"stop_reason": stopped})}
        return self._response(status, incomplete_details=why, completed_at=int(time()), **foot)

    def _response(self, status: str, **more: Any) -> dict[str, Any]:
        """The object; the same id, time and settings in every event."""
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "completed_at": None,
            "error": None,
            "incomplete_details": None,
            "model": self.model,
            "output": self._items.items,
            "usage": None,
            **_as_asked(self._body),
            **more,
        }

    def _logprobs(self, chunk: Chunk) -> Logprobs:
        """Of the tokens that are known by now to be no thought."""
        if not self._body.wants(LOGPROBS):
            return []
        self._waiting += chunk.logprobs or [None] * len(chunk.token_ids)  # a piece that was resumed has none
        known = [thought for token in chunk.token_ids for thought in self._thoughts.push(token)]
        known += self._thoughts.finish() if chunk.finish_reason is not None else []
        due, self._waiting = self._waiting[: len(known)], self._waiting[len(known) :]
        shown = [one for one, thought in zip(due, known, strict=True) if one is not None and not thought]
        told: Logprobs = of_chat(shown, self.service.codec, self._body.top_logprobs or 0)["content"]
        return told


def _status(text: Chunk | Result) -> str:
    return "completed" if text.finish_reason == "stop" else "incomplete"


def _as_asked(body: ResponsesRequest) -> dict[str, Any]:
    """The settings, with what was in force where the request says nothing."""
    form = None if body.text is None else body.text.format
    choice = body.tool_choice or "auto"
    return {
        **{name: body.in_force(name) for name in _SAME},
        "metadata": body.metadata or {},
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "reasoning": {"effort": None if body.reasoning is None else body.reasoning.effort, "summary": None},
        "text": {"format": {"type": "text"} if form is None else form.model_dump(by_alias=True, exclude_none=True)},
        "tools": [tool.model_dump() for tool in body.tools or ()],
        "tool_choice": choice if isinstance(choice, str) else choice.model_dump(),
        "top_logprobs": body.top_logprobs or 0,
        "truncation": "disabled",
        "background": False,
        "store": False,
        "previous_response_id": None,
        "service_tier": "default",
    }


def _usage(usage: dict[str, Any]) -> dict[str, Any]:
    """A chat's usage under this API's names."""
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {**usage["prompt_tokens_details"], "cache_write_tokens": 0},
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": usage["completion_tokens_details"],
        "total_tokens": usage["total_tokens"],
    }

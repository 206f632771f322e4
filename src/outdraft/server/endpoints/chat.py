"""`POST /v1/chat/completions`, as OpenAI's API has it: https://platform.openai.com/docs/api-reference/chat"""

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from outdraft.core.logprobs import TokenLogprobs
from outdraft.engine.callers.answers import Answers, Place
from outdraft.engine.callers.result import Chunk, Result
from outdraft.server.connection import as_json
from outdraft.server.conversation import Conversation, converse
from outdraft.server.doors.body_limit import SIZE
from outdraft.server.endpoints.answering import ReplyShape, answer, reason
from outdraft.server.parsers.json_text import WrittenCall
from outdraft.server.parsers.message import MessageReader
from outdraft.server.schema.chat import ChatRequest
from outdraft.server.service import Service
from outdraft.server.wire.logprobs import of_chat, of_ids


def add(app: FastAPI, service: Service) -> None:
    """Add this route to the app."""

    @app.post("/v1/chat/completions", tags=["text"], summary="Answer a conversation")
    async def chat(body: ChatRequest, request: Request) -> Response:
        asked = await service.reading.read(request.scope.get(SIZE, 0), converse, service, body)
        return await answer(request, ChatShape(service, body, asked), [asked.prompt], asked.params)


class ChatShape(ReplyShape):
    """The shape of its replies."""

    kind, piece_kind = "chat.completion", "chat.completion.chunk"

    def __init__(self, service: Service, body: ChatRequest, asked: Conversation) -> None:
        super().__init__(service, body, "chatcmpl-")
        self._body, self._asked = body, asked
        self._readers: dict[int, MessageReader] = {}  # of each text

    def whole(self, results: list[Result]) -> dict[str, Any]:
        (one,) = results
        choices = [as_json(self._choice(text)) for text in one.outputs]
        read = self._of_prompt(one.prompt_token_ids, one.prompt_logprobs)
        return {**self.head(self.kind), "choices": choices, **read, **self.foot(results)}

    def begin(self, answers: Answers) -> Iterator[dict[str, Any]]:
        for index in range(answers.requests[0].params.n):
            self._readers[index] = self._asked.reader()
            delta = {"role": "assistant", "content": ""}
            first = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
            prompt = answers.requests[0].prompt_token_ids if index == 0 else None
            yield self.told(answers, Chunk(text=""), first, **self._of_prompt(ids=prompt))

    def piece(self, answers: Answers, place: Place, chunk: Chunk) -> dict[str, Any] | None:
        reader = self._readers[chunk.index]
        delta = _delta(reader, chunk)
        read = self._of_prompt(logprobs=chunk.prompt_logprobs if chunk.index == 0 else None)
        tells = chunk.logprobs or read or self._body.return_token_ids or self._body.return_draft_tree
        if not (delta or chunk.finish_reason is not None or tells):
            self.piece_usage(answers, chunk)  # it is counted, and shown with the next one
            return None
        ended, stopped = reason(chunk)
        choice = {
            "index": chunk.index,
            "delta": delta,
            "logprobs": self._logprobs(chunk.logprobs),
            "finish_reason": "tool_calls" if reader.num_calls and ended == "stop" else ended,
            **self.tokens_told(chunk, chunk.index),
            **({} if ended is None else {"stop_reason": stopped}),
        }
        return self.told(answers, chunk, choice, **read)

    def num_reasoning_tokens(self, results: list[Result]) -> int:
        return self._asked.num_reasoning_tokens(results)

    def _choice(self, text: Result) -> dict[str, Any]:
        said = self._asked.reader().whole(text.text, text.token_ids)
        ended, stopped = reason(text)
        message: dict[str, Any] = {"role": "assistant", "content": said.content, "refusal": None}
        if said.reasoning:
            message["reasoning_content"] = said.reasoning
        if said.calls:
            message |= {"content": said.content or None, "tool_calls": [_called(one) for one in said.calls]}
        return {
            "index": text.index,
            "message": message,
            "logprobs": self._logprobs(text.logprobs or ()),
            "finish_reason": "tool_calls" if said.calls and ended == "stop" else ended,
            "stop_reason": stopped,
            **self.tokens_told(text, text.index),
        }

    def _of_prompt(
        self, ids: Seq[int] | None = None, logprobs: Seq[TokenLogprobs | None] | None = None
    ) -> dict[str, Any]:
        """The fields of the prompt that the body asks for; sent once for all of its texts."""
        fields: dict[str, Any] = {}
        if self._body.prompt_logprobs is not None and logprobs is not None:
            fields["prompt_logprobs"] = of_ids(logprobs)
        if self._body.return_token_ids and ids is not None:
            fields["prompt_token_ids"] = list(ids)
        return fields

    def _logprobs(self, tokens: Any) -> dict[str, Any] | None:
        if not self._body.logprobs:
            return None
        return of_chat(tokens, self.service.codec, self._body.top_logprobs or 0)


def _delta(reader: MessageReader, chunk: Chunk) -> dict[str, Any]:
    """What a piece adds; empty while nothing is certain. A call is one delta, as it is sent when it is complete."""
    said = reader.push(chunk.text, chunk.token_ids, final=chunk.finish_reason is not None)
    delta: dict[str, Any] = {}
    if said.reasoning:
        delta["reasoning_content"] = said.reasoning
    if said.content:
        delta["content"] = said.content
    if said.calls:
        first = reader.num_calls - len(said.calls)
        delta["tool_calls"] = [{"index": i, **_called(one)} for i, one in enumerate(said.calls, first)]
    return delta


def _called(call: WrittenCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}

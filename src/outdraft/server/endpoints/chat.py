"""`POST /v1/chat/completions`, as OpenAI's API has it: https://platform.openai.com/docs/api-reference/chat"""

from collections.abc import AsyncIterator
from collections.abc import Sequence as Seq
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from outdraft.core.logprobs import TokenLogprobs
from outdraft.engine.callers.answers import Answers
from outdraft.engine.callers.result import Chunk, Result
from outdraft.server.connection import DONE, event
from outdraft.server.conversation import Conversation, converse
from outdraft.server.doors.body_limit import SIZE
from outdraft.server.endpoints.answering import Heading, answer, reason
from outdraft.server.schema.chat import ChatRequest
from outdraft.server.service import Service
from outdraft.server.wire import draft_tree
from outdraft.server.wire.deltas import Deltas, message
from outdraft.server.wire.logprobs import of_chat, of_ids
from outdraft.server.wire.tokens import TokensTold

_KIND, _PIECE = "chat.completion", "chat.completion.chunk"


def add(app: FastAPI, service: Service) -> None:
    """Add this route to the app."""

    @app.post("/v1/chat/completions", tags=["text"], summary="Answer a conversation")
    async def chat(body: ChatRequest, request: Request) -> Response:
        asked = await service.reading.read(request.scope.get(SIZE, 0), converse, service, body)
        return await answer(request, service, body, [asked.prompt], asked.params, Chat(service, body, asked))


class Chat:
    """The shape of its replies."""

    def __init__(self, service: Service, body: ChatRequest, asked: Conversation) -> None:
        self._service, self._body, self._asked = service, body, asked
        self._heading = Heading(service, body, "chatcmpl-")
        self._tokens = TokensTold(service.llm.codec)

    def whole(self, results: list[Result]) -> dict[str, Any]:
        choices = [self._choice(text) for text in results[0].outputs]
        return {
            **self._heading.head(_KIND),
            "choices": choices,
            **self._of_prompt(results[0].prompt_token_ids, results[0].prompt_logprobs),
            **self._heading.foot(results, self._asked.num_reasoning_tokens(results)),
        }

    async def events(self, answers: Answers) -> AsyncIterator[bytes]:
        readers = [Deltas(self._asked.reader()) for _ in range(answers.requests[0].params.n)]
        for index in range(len(readers)):
            first = {
                "index": index,
                "delta": {"role": "assistant", "content": ""},
                "logprobs": None,
                "finish_reason": None,
            }
            prompt = answers.requests[0].prompt_token_ids if index == 0 else None
            yield self._event([first], answers, Chunk(text=""), **self._of_prompt(ids=prompt))
        async for _, chunk in answers:
            delta = readers[chunk.index].delta(chunk)
            read = self._of_prompt(logprobs=chunk.prompt_logprobs if chunk.index == 0 else None)
            tells = chunk.logprobs or read or self._body.return_token_ids or self._body.return_draft_tree
            if delta or chunk.finish_reason is not None or tells:
                yield self._event([self._piece(chunk, readers[chunk.index], delta)], answers, chunk, **read)
            else:
                self._heading.piece_usage(answers, chunk)  # it is counted, and shown with the next one
        answers.raise_error()
        if (last := self._heading.last(_PIECE, answers, self._asked.num_reasoning_tokens)) is not None:
            yield event(last)
        yield DONE

    def _event(self, choices: list[dict[str, Any]], answers: Answers, chunk: Chunk, **more: Any) -> bytes:
        usage = self._heading.piece_usage(answers, chunk)
        return event({**self._heading.head(_PIECE), "choices": choices, **more, **usage})

    def _choice(self, text: Result) -> dict[str, Any]:
        said = self._asked.reader().whole(text.text, text.token_ids)
        ended, stopped = reason(text)
        return {
            "index": text.index,
            "message": message(said),
            "logprobs": self._logprobs(text.logprobs or ()),
            "finish_reason": "tool_calls" if said.calls and ended == "stop" else ended,
            "stop_reason": stopped,
            **self._ids(text),
        }

    def _piece(self, chunk: Chunk, read: Deltas, delta: dict[str, Any]) -> dict[str, Any]:
        ended, stopped = reason(chunk)
        made = {
            "index": chunk.index,
            "delta": delta,
            "logprobs": self._logprobs(chunk.logprobs),
            "finish_reason": "tool_calls" if read.num_calls and ended == "stop" else ended,
            **self._ids(chunk),
        }
        return made if ended is None else {**made, "stop_reason": stopped}

    def _ids(self, text: Chunk | Result) -> dict[str, Any]:
        told = self._tokens.of(text, text.index) if self._body.return_token_ids else {}
        if self._body.return_draft_tree:
            told["draft_tree"] = draft_tree.told(text.draft_tree, self._service.llm.codec)
        return told

    def _of_prompt(
        self, ids: Seq[int] | None = None, logprobs: Seq[TokenLogprobs | None] | None = None
    ) -> dict[str, Any]:
        """What was asked for of the prompt; given once, however many texts it has."""
        told: dict[str, Any] = {}
        if self._body.prompt_logprobs is not None and logprobs is not None:
            told["prompt_logprobs"] = of_ids(logprobs)
        if self._body.return_token_ids and ids is not None:
            told["prompt_token_ids"] = list(ids)
        return told

    def _logprobs(self, tokens: Any) -> dict[str, Any] | None:
        if not self._body.logprobs:
            return None
        return of_chat(tokens, self._service.codec, self._body.top_logprobs or 0)

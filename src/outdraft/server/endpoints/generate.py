"""`POST /inference/v1/generate`: token ids in, token ids out, as vLLM has it, for routers and trainers.

A model without a tokenizer can be asked here too.
"""

from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from outdraft.core.logprobs import TokenLogprobs
from outdraft.engine.callers.answers import Answers
from outdraft.engine.callers.result import Chunk, Result
from outdraft.server.connection import DONE, event
from outdraft.server.endpoints.answering import Heading, answer, reason
from outdraft.server.schema.tokens import GenerateRequest, TokenSampling
from outdraft.server.service import Service
from outdraft.server.wire import draft_tree
from outdraft.server.wire.logprobs import number, of_ids


def add(app: FastAPI, service: Service) -> None:
    """Add this route to the app."""

    @app.post("/inference/v1/generate", tags=["tokens"], summary="Continue token ids")
    async def generate(body: GenerateRequest, request: Request) -> Response:
        settings, params = body.sampling(), body.params()
        prompts = [{"prompt_token_ids": body.token_ids}]
        return await answer(request, service, settings, prompts, params, Generation(service, settings))


class Generation:
    """The shape of its replies."""

    def __init__(self, service: Service, body: TokenSampling) -> None:
        self._body = body
        self._heading = Heading(service, body, "" if body.request_id else "generate-")

    def whole(self, results: list[Result]) -> dict[str, Any]:
        told = {**self._head(), "choices": [self._choice(text) for text in results[0].outputs]}
        if (read := results[0].prompt_logprobs) is not None:
            told["prompt_logprobs"] = of_ids(read)
        return {**told, **self._heading.foot(results)}

    async def events(self, answers: Answers) -> AsyncIterator[bytes]:
        async for _, chunk in answers:
            told = {**self._head(), "choices": [self._choice(chunk)]}
            if chunk.prompt_logprobs is not None:
                told["prompt_logprobs"] = of_ids(chunk.prompt_logprobs)
            yield event({**told, **self._heading.piece_usage(answers, chunk)})
        answers.raise_error()
        if (last := self._heading.last("", answers)) is not None:
            yield event({**self._head(), **{name: last[name] for name in last if name not in ("id", "object")}})
        yield DONE

    def _head(self) -> dict[str, Any]:
        return {"request_id": self._heading.id, "created": self._heading.created, "model": self._heading.model}

    def _choice(self, text: Chunk | Result) -> dict[str, Any]:
        ended, stopped = reason(text)
        return {
            "index": text.index, "token_ids": list(text.token_ids), "token_sources": list(text.sources),
            "logprobs": self._logprobs(text.logprobs or ()), "finish_reason": ended, "stop_reason": stopped,
            **({"draft_tree": draft_tree.told(text.draft_tree, None)} if self._body.return_draft_tree else {}),
        }  # fmt: skip

    def _logprobs(self, tokens: tuple[TokenLogprobs, ...]) -> dict[str, Any] | None:
        count = self._body.logprobs
        if count is None:
            return None
        return {
            "content": [
                {**_told(one.token, one.logprob), "top_logprobs": [_told(*best) for best in one.top[:count]]}
                for one in tokens
            ]
        }


def _told(token: int, value: float) -> dict[str, Any]:
    """There is no text here: a token's name is its id, in the words that vLLM uses for it."""
    return {"token": f"token_id:{token}", "logprob": number(value)}

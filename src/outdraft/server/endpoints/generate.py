"""`POST /inference/v1/generate`: token ids in, token ids out, as vLLM has it, for routers and trainers.

A model without a tokenizer can be asked here too.
"""

from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from outdraft.core.logprobs import TokenLogprobs
from outdraft.engine.callers.answers import Answers, Place
from outdraft.engine.callers.result import Chunk, Result
from outdraft.options.errors import OutdraftError
from outdraft.server.connection import as_json
from outdraft.server.endpoints.answering import ReplyShape, answer, reason
from outdraft.server.errors import ApiError, renamed, told
from outdraft.server.schema.tokens import SETTINGS, GenerateRequest, TokenSampling
from outdraft.server.service import Service
from outdraft.server.wire.logprobs import number, of_ids
from outdraft.server.wire.tokens import draft_tree

_CALLED = {rf"^({'|'.join(SETTINGS)})\b": r"sampling_params.\1"}


def add(app: FastAPI, service: Service) -> None:
    """Add this route to the app."""

    @app.post("/inference/v1/generate", tags=["tokens"], summary="Continue token ids")
    async def generate(body: GenerateRequest, request: Request) -> Response:
        prompts = [{"prompt_token_ids": body.token_ids}]
        try:
            settings, params = body.sampling(), body.params()
            return await answer(request, Generation(service, settings), prompts, params)
        except (ApiError, OutdraftError) as error:
            raise renamed(told(error), _CALLED) from error


class Generation(ReplyShape):
    """The shape of its replies."""

    def __init__(self, service: Service, body: TokenSampling) -> None:
        super().__init__(service, body, "" if body.request_id else "generate-")
        self._body = body

    def head(self, kind: str) -> dict[str, Any]:
        return {"request_id": self.id, "created": self.created, "model": self.model}

    def whole(self, results: list[Result]) -> dict[str, Any]:
        choices = [as_json(self._choice(text)) for text in results[0].outputs]
        return {**self.head(""), "choices": choices, **_of_prompt(results[0]), **self.foot(results)}

    def piece(self, answers: Answers, place: Place, chunk: Chunk) -> dict[str, Any]:
        return self.told(answers, chunk, self._choice(chunk), **_of_prompt(chunk))

    def _choice(self, text: Chunk | Result) -> dict[str, Any]:
        ended, stopped = reason(text)
        return {
            "index": text.index,
            "token_ids": list(text.token_ids),
            "token_sources": list(text.sources),
            "logprobs": self._logprobs(text.logprobs or ()),
            "finish_reason": ended,
            "stop_reason": stopped,
            **({"draft_tree": draft_tree(text.draft_tree, None)} if self._body.return_draft_tree else {}),
        }

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


def _of_prompt(text: Chunk | Result) -> dict[str, Any]:
    return {} if text.prompt_logprobs is None else {"prompt_logprobs": of_ids(text.prompt_logprobs)}


def _told(token: int, value: float) -> dict[str, Any]:
    """There is no text here: a token's name is its id, in the words that vLLM uses for it."""
    return {"token": f"token_id:{token}", "logprob": number(value)}

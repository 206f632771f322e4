"""`POST /v1/completions`, as OpenAI's API has it: https://platform.openai.com/docs/api-reference/completions"""

from collections.abc import Sequence as Seq
from dataclasses import replace
from itertools import accumulate
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from outdraft.engine.callers.answers import Answers, Place
from outdraft.engine.callers.prompts import Prompt
from outdraft.engine.callers.result import Chunk, Result
from outdraft.server.connection import as_json
from outdraft.server.endpoints.answering import ReplyShape, answer, as_chunk, reason
from outdraft.server.schema.completions import CompletionRequest
from outdraft.server.service import Service
from outdraft.server.wire.logprobs import Offsets, of_completion, of_ids
from outdraft.server.wire.tokens import spelled


def add(app: FastAPI, service: Service) -> None:
    """Add this route to the app."""

    @app.post("/v1/completions", tags=["text"], summary="Continue a text, or several")
    async def complete(body: CompletionRequest, request: Request) -> Response:
        params, prompts = body.params(), body.prompts()
        return await answer(request, Completion(service, body, prompts), prompts, params)


class Completion(ReplyShape):
    """The shape of its replies."""

    kind = piece_kind = "text_completion"

    def __init__(self, service: Service, body: CompletionRequest, prompts: Seq[Prompt]) -> None:
        super().__init__(service, body, "cmpl-", writes=body.max_tokens != 0)
        self._body, self._prompts, self.echoes = body, prompts, bool(body.echo)
        self._begun: set[int] = set()  # texts of which a piece was sent
        self._offsets: dict[int, Offsets] = {}

    def whole(self, results: list[Result]) -> dict[str, Any]:
        # the engine gives the log probabilities of a prompt with the first of its texts alone
        texts = [(text, as_chunk(text, prompt_logprobs=one.prompt_logprobs)) for one in results for text in one.outputs]
        choices = [as_json(self._piece(chunk, i, text.prompt_token_ids)) for i, (text, chunk) in enumerate(texts)]
        return {**self.head(self.kind), "choices": choices, **self.foot(results)}

    def piece(self, answers: Answers, place: Place, chunk: Chunk) -> dict[str, Any]:
        at = place.prompt * answers.requests[0].params.n + place.index
        return self.told(answers, chunk, self._piece(chunk, at, answers.requests[place.prompt].prompt_token_ids))

    def _piece(self, chunk: Chunk, index: int, prompt: tuple[int, ...]) -> dict[str, Any]:
        """One piece of a text, or all of it; the prompt before the first where it is to be echoed."""
        body, begins = self._body, index not in self._begun
        self._begun.add(index)
        if not self.writes:  # the engine has written a token all the same
            ended = "length" if chunk.finish_reason == "stop" else chunk.finish_reason
            chunk = replace(
                chunk, text="", token_ids=(), sources=(), logprobs=(), finish_reason=ended, stop_reason=None
            )
        before = ""
        if body.echo and begins:  # as it was given; of token ids their text, with the names of special tokens
            given = self._given(index)
            before = "".join(spelled(prompt, self.service.codec)) if given is None else given
        told, stopped = reason(chunk)
        choice: dict[str, Any] = {
            "index": index,
            "text": before + chunk.text,
            "logprobs": self._logprobs(chunk, index, prompt, len(before)),
            "finish_reason": told,
            "stop_reason": stopped,
        }
        if body.prompt_logprobs is not None and chunk.prompt_logprobs is not None:
            choice["prompt_logprobs"] = of_ids(chunk.prompt_logprobs)
        choice |= self.tokens_told(chunk, index)
        if body.return_token_ids and begins:
            choice["prompt_token_ids"] = list(prompt)
        return choice

    def _given(self, index: int) -> str | None:
        """The prompt of a text, where it was given as a text."""
        prompt = self._prompts[index // self._body.in_force("n")]
        return prompt if isinstance(prompt, str) else None

    def _begins(self, index: int, prompt: tuple[int, ...]) -> list[int]:
        """Where the tokens of the prompt begin in what is echoed of it."""
        given, codec = self._given(index), self.service.codec
        if given is None:
            return [*accumulate(map(len, spelled(prompt, codec)), initial=0)]
        return codec.begins(given, prompt)

    def _logprobs(self, chunk: Chunk, index: int, prompt: tuple[int, ...], begin: int) -> dict[str, Any] | None:
        """`begin`: characters of the prompt where it stands before the text. A piece that was resumed has no log
        probabilities, but a length; those of the prompt come with the next one then."""
        if self._body.logprobs is None:
            return None
        codec = self.service.codec
        echoed = prompt if self._body.echo and chunk.prompt_logprobs is not None else ()
        begins = self._begins(index, echoed) if echoed else ()
        asked = zip(echoed, begins, chunk.prompt_logprobs or (), strict=False)
        text = self._offsets.setdefault(index, Offsets(codec.stream(), begin))
        written = [*zip(chunk.token_ids, text.of(chunk.token_ids), strict=True)]
        told = zip(written[len(written) - len(chunk.logprobs) :], chunk.logprobs, strict=True)
        tokens = [*asked, *((token, offset, one) for (token, offset), one in told)]
        return of_completion(tokens, codec, self._body.logprobs)

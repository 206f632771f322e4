"""`POST /tokenize` and `POST /detokenize`: the model's tokenizer on its own, with vLLM's fields.

They run beside the event loop, because a long text takes a while to read.
"""

from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from outdraft.server.connection import JsonReply
from outdraft.server.conversation import converse
from outdraft.server.doors.body_limit import SIZE
from outdraft.server.errors import wrong_field
from outdraft.server.schema.tokens import DetokenizeRequest, TokenizeRequest
from outdraft.server.service import Service
from outdraft.server.wire.tokens import spelled


def add(app: FastAPI, service: Service) -> None:
    """Add these routes to the app."""

    @app.post("/tokenize", tags=["tokens"], summary="A text, or a conversation, as token ids")
    async def tokenize(body: TokenizeRequest, request: Request) -> Response:
        service.check_model(body.model)
        return await service.reading.read(request.scope.get(SIZE, 0), _tokenized, service, body)

    @app.post("/detokenize", tags=["tokens"], summary="Token ids as text")
    def detokenize(body: DetokenizeRequest) -> Response:
        service.check_model(body.model)
        codec = service.codec
        for one in body.tokens:
            if one >= codec.num_ids:
                raise wrong_field(
                    f"tokens has {one!r:.40}, and the tokenizer knows ids below {codec.num_ids}", "tokens"
                )
        skips, ids = body.skip_special_tokens, body.tokens
        return JsonReply({"prompt": codec.decode(ids) if skips else "".join(spelled(ids, codec))})


def _tokenized(service: Service, body: TokenizeRequest) -> Response:
    chat, codec = body.conversation(), service.codec
    if chat is not None:
        ids = list(service.llm.encode(converse(service, chat).prompt))
    else:
        ids = codec.encode(body.prompt or "", add_special=body.add_special_tokens is not False)
    told: dict[str, Any] = {
        "count": len(ids),
        "max_model_len": service.llm.config["max_model_len"],
        "tokens": ids,
        "token_strs": [codec.token_text(one) for one in ids] if body.return_token_strs else None,
    }
    return JsonReply(told)

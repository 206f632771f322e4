"""One line of JSON in the log for each request, and an id that joins it to the client's own log.

    {"id": "req-...", "method": "POST", "path": "/v1/completions", "status": 200, "whole": true, "seconds": 0.41,
     "first_seconds": 0.05, "prompt_tokens": 12, "completion_tokens": 40, "tokens_per_pass": 2.9, "finish": ["stop"],
     "drafted_by": {"ngram": 9}, "acceptance_rate": 0.81, "estimated_speedup": 1.7}

`X-Request-Id` is taken from the request, if it is a plain one, and given back with every answer. `whole`: the client
has stayed to the end. No key and no header is written, and no text unless the operator wants it (`--log-requests`).
"""

import json
import logging
import re
from collections import Counter
from time import perf_counter
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from outdraft.codecs.text import TextCodec
from outdraft.engine.callers.answers import Answers
from outdraft.options.limits import PLAIN_ID
from outdraft.server.service import new_id

ANSWERS = "outdraft.answers"  # in the scope: what the engine writes for the request
REQUEST_ID = "outdraft.request_id"
_QUIET = ("/live", "/ready", "/health", "/metrics", "/load")  # asked every few seconds
_PLAIN = re.compile(PLAIN_ID)
_log = logging.getLogger("outdraft.server.requests")


class RequestLog:
    """`codec`: reads what is shown; `shows_texts`: prompts and answers are written too."""

    def __init__(self, app: ASGIApp, *, codec: TextCodec | None, shows_texts: bool) -> None:
        self._app, self._codec, self._shows = app, codec, shows_texts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        scope[REQUEST_ID] = identity = given if _PLAIN.fullmatch(given) else new_id("req-")
        told: dict[str, Any] = {"id": identity, "method": scope["method"], "path": scope["path"][:100]}
        told |= {"status": 500, "whole": False}
        began = perf_counter()

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                told["status"] = message["status"]
                MutableHeaders(scope=message).setdefault("X-Request-Id", identity)
            elif message.get("body") and "first_seconds" not in told:
                told["first_seconds"] = round(perf_counter() - began, 4)
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                told["whole"] = True

        try:
            await self._app(scope, receive, noted)
        finally:
            answers = scope.pop(ANSWERS, None)  # the connection keeps the scope until its next request
            if scope["path"] not in _QUIET:
                told["seconds"] = round(perf_counter() - began, 4)
                if answers is not None:
                    told |= _written(answers) | (self._texts(answers) if self._shows else {})
                _log.info("%s", json.dumps(told))

    def _texts(self, answers: Answers) -> dict[str, Any]:
        results, codec = answers.results(), self._codec
        prompts = [codec.decode(one.prompt_token_ids) if isinstance(codec, TextCodec) else None for one in results]
        return {"prompts": prompts, "texts": [text.text for one in results for text in one.outputs]}


def _written(answers: Answers) -> dict[str, Any]:
    """Sizes, and how each text ended: null where its caller left before."""
    results = answers.results()
    texts = [text for one in results for text in one.outputs]
    passes = sum(text.stats.num_steps for text in texts)
    rounds = sum((text.stats.rounds_by_method for text in texts), Counter[str]())
    accepted = sum(text.stats.num_accepted_tokens - text.stats.num_forced_tokens for text in texts)
    examined = accepted + sum(text.stats.num_rejections for text in texts)
    gain = texts[0].stats.estimated_speedup if len(texts) == 1 else None
    written = sum(len(text.token_ids) for text in texts)
    return {
        "prompt_tokens": sum(len(one.prompt_token_ids) for one in results),
        "cached_tokens": sum(one.num_cached_tokens for one in results),
        "completion_tokens": written,
        "draft_tokens": sum(text.stats.num_draft_tokens for text in texts),
        "accepted_tokens": sum(text.stats.num_accepted_tokens for text in texts),
        "tokens_per_pass": round(written / passes, 2) if passes else None,
        "drafted_by": dict(rounds),
        "acceptance_rate": round(accepted / examined, 3) if examined else None,
        "estimated_speedup": None if gain is None else round(gain, 2),
        "finish": [text.finish_reason for text in texts],
    }

"""The application: endpoints, and what stands before all of them (`doors`)."""

import logging

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from outdraft import __version__
from outdraft.options.errors import OutdraftError
from outdraft.server.connection import error_reply
from outdraft.server.doors.auth import Auth
from outdraft.server.doors.body_limit import BodyLimit
from outdraft.server.doors.rate_limit import RateLimit
from outdraft.server.doors.request_log import REQUEST_ID, RequestLog
from outdraft.server.endpoints import chat, completions, generate, page, responses, status, tokenize
from outdraft.server.errors import ApiError, told
from outdraft.server.openapi import describe
from outdraft.server.schema.base import refuse
from outdraft.server.service import Service
from outdraft.server.strict_json import StrictRoute

_ENDPOINTS = (completions, chat, responses, generate, tokenize, status, page)
_log = logging.getLogger("outdraft.server")


def make_app(service: Service) -> FastAPI:
    """The ASGI application of a service."""
    app = FastAPI(title="outdraft", version=__version__, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.router.route_class = StrictRoute
    app.state.max_len = service.llm.config["max_model_len"]
    for endpoint in _ENDPOINTS:
        endpoint.add(app, service)
    describe(app, has_keys=bool(service.settings.api_keys))
    for kind in (ApiError, OutdraftError, Exception):
        app.add_exception_handler(kind, _answer_error)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_exception_handler(ClientDisconnect, _answer_nobody)
    settings = service.settings  # the last one added is met first
    app.add_middleware(_heads)
    app.add_middleware(BodyLimit, most=settings.max_body_bytes, seconds=settings.body_timeout)
    app.add_middleware(RateLimit, a_minute=settings.rate_limit)
    adapting = service.llm.adapting
    secret = None if adapting is None else adapting.room.secret
    app.add_middleware(Auth, keys=settings.api_keys, secret=secret)
    if settings.allow_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.allow_origins),
            allow_methods=["GET", "HEAD", "POST"],
            allow_headers=["*"],
        )
    app.add_middleware(RequestLog, codec=service.llm.tokenizer, shows_texts=settings.log_requests)
    return app


def _heads(app: ASGIApp) -> ASGIApp:
    """HEAD is answered as GET is; the server that sends the answer leaves its body out."""

    async def asked(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "method": "GET"} if scope.get("method") == "HEAD" else scope, receive, send)

    return asked


async def _answer_error(request: Request, error: Exception) -> Response:
    found = told(error)
    if found.status == 500:
        _log.error(
            "%s failed: %s %.100r", request.scope.get(REQUEST_ID), request.method, request.url.path, exc_info=error
        )
    return error_reply(found, {"X-Request-Id": request.scope.get(REQUEST_ID, "")})


async def _answer_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    if isinstance(error.body, bytes) and error.body:  # it was not taken for JSON: a form of another page's may ask too
        return error_reply(ApiError(415, "send the header Content-Type: application/json, and the body as JSON"))
    return error_reply(refuse(error.errors()))


async def _answer_http(request: Request, error: Exception) -> Response:
    """What the router refuses: no such path, or no such method on it."""
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, ApiError):  # the body was too large or too slow
        return error_reply(error.__cause__)
    if error.status_code == 404:
        return error_reply(ApiError(404, f"there is no {request.url.path:.100} here; GET /openapi.json lists what is"))
    if error.status_code == 405:
        takes = {*dict(error.headers or {}).get("Allow", "").split(", ")}
        allowed = ", ".join(sorted(takes | {"HEAD"} if "GET" in takes else takes))
        message = f"{request.method} is not for {request.url.path:.100}; it takes {allowed}"
        return error_reply(ApiError(405, message, headers={"Allow": allowed}))
    message = "the body could not be read as JSON" if error.status_code == 400 else str(error.detail)
    return error_reply(ApiError(error.status_code, message, headers=error.headers))


async def _answer_nobody(request: Request, error: Exception) -> Response:
    return error_reply(ApiError(499, "the client has hung up"))

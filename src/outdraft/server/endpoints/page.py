"""`GET /`: a page to try the model on, and its parts under `/page/`. They are files of this package, read once.

It needs no key, as it holds nothing; what it asks of the server does. Nothing on it comes from elsewhere, and its
policy forbids the browser to load or run anything else: https://www.w3.org/TR/CSP3/
"""

from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from outdraft.server.errors import ApiError
from outdraft.server.service import Service

_FIRST = "index.html"
_KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Cache-Control": "no-cache",  # kept, and asked about each time
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    body: bytes
    kind: str
    tag: str  # changes with the body

    def reply(self, request: Request) -> Response:
        """Nothing but the tag where the browser has it already."""
        headers = {**_HEADERS, "ETag": self.tag}
        known = [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]
        if self.tag in known or "*" in known:
            return Response(status_code=304, headers=headers)
        return Response(self.body, headers={**headers, "Content-Type": f"{self.kind}; charset=utf-8"})


def add(app: FastAPI, service: Service) -> None:
    """Add these routes to the app."""
    parts = _read()

    @app.get("/", tags=["about"], summary="A page to try the model on")
    async def page(request: Request) -> Response:
        return parts[_FIRST].reply(request)

    @app.get("/page/{name}", include_in_schema=False)
    async def part(name: str, request: Request) -> Response:
        if name not in parts:
            raise ApiError(404, f"the page has no part {name!r:.100}")
        return parts[name].reply(request)


def _read() -> dict[str, _Part]:
    """Only what lies there now is ever served, whatever path is asked for."""
    found = {}
    for path in files("outdraft.server").joinpath("page").iterdir():
        kind = _KINDS.get(path.name[path.name.rfind(".") :])
        if kind is not None:
            body = path.read_bytes()
            found[path.name] = _Part(body=body, kind=kind, tag=f'"{sha256(body).hexdigest()[:32]}"')
    return found

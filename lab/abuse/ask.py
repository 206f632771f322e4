"""One request with a deadline: its status, what it was answered, and whether the answer has a clean form.

A refusal is one clear sentence in OpenAI's shape. Status 0: the answer broke off, or has no end within the deadline;
the latter is no fault by itself, as a long text takes its time.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any

from lab.soak_http.judge import faults_of_error
from lab.soak_http.wire import BrokenError, Connection, StuckError, request

DEADLINE = 30.0  # seconds
REFUSALS = (400, 404, 408, 413, 414, 422, 429, 431, 503)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request as bytes, made before anything is timed."""

    data: bytes

    @classmethod
    def post(cls, path: str, body: Any, headers: Mapping[str, str] | None = None) -> "Asked":
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        return cls(data=request("POST", path, sent, {"Connection": "close", **(headers or {})}))

    @classmethod
    def get(cls, path: str, headers: Mapping[str, str] | None = None) -> "Asked":
        return cls(data=request("GET", path, None, {"Connection": "close", **(headers or {})}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """`status` 0: no answer; `said`: the sentence of a refusal; `faults`: what is wrong with the answer's form."""

    status: int
    seconds: float
    said: str = ""
    faults: tuple[str, ...] = ()
    is_late: bool = False
    body: bytes = b""  # of an answer that is no refusal

    @property
    def is_refused(self) -> bool:
        return self.status in REFUSALS


async def ask(address: str, asked: Asked, deadline: float = DEADLINE) -> Reply:
    """The reply to one request, over a connection of its own."""
    began = monotonic()
    try:
        status, kind, body = await asyncio.wait_for(_exchange(address, asked), deadline)
    except (TimeoutError, StuckError):
        return Reply(status=0, seconds=monotonic() - began, said=f"no answer in {deadline:.0f} s", is_late=True)
    except BrokenError as error:
        return Reply(status=0, seconds=monotonic() - began, faults=(str(error),))
    seconds = monotonic() - began
    if status < 400:
        return Reply(status=status, seconds=seconds, body=body)
    faults = faults_of_error(status, kind, body) + ([] if status in REFUSALS else [f"status {status}"])
    return Reply(status=status, seconds=seconds, said=_sentence(body), faults=tuple(faults))


async def _exchange(address: str, asked: Asked) -> tuple[int, str, bytes]:
    connection = await Connection.open(address)
    sending = asyncio.ensure_future(connection.send(asked.data))  # an answer may come before all is sent
    try:
        head = await connection.head()
        body = await connection.body(head)
        await sending
        return head.status, head.headers.get("content-type", ""), body
    finally:
        sending.cancel()
        connection.close(rudely=True)


def _sentence(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return repr(body[:200])

"""What goes wrong, in OpenAI's shape: {"error": {"message", "type", "param", "code"}}, with the status that fits.

Messages name the thing and the cure. No path, address or traceback of this machine leaves it: `clean` takes them out,
and an unforeseen error is named by its kind alone.
"""

import logging
import re
from collections.abc import Mapping
from typing import Any

from outdraft.engine.callers.worker import STOPPED
from outdraft.options.errors import BusyError, CapabilityError, NumericsError, OutdraftError, RequestError

TOO_LONG = "context_length_exceeded"  # the code that clients of OpenAI's API look for before they shorten a prompt
_log = logging.getLogger("outdraft.server")
_PLACES = re.compile(r"(?<![\w.:/])(?:[A-Za-z]:\\|/)(?:[\w.@+-]+[/\\])+[\w.@+-]*|0x[0-9a-fA-F]{6,}")
_TYPES = {  # of other statuses: invalid_request_error, and server_error from 500
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    429: "rate_limit_error",
    501: "not_supported_error",
    503: "unavailable_error",
}


class ApiError(Exception):
    """An answer that is an error. `headers`: such as Retry-After."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code, self.headers = status, param, code, dict(headers or {})

    @property
    def message(self) -> str:
        return " ".join(str(self).split())

    @property
    def body(self) -> dict[str, Any]:
        kind = _TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


def wrong_field(message: str, name: str | None = None, *, code: str | None = None) -> ApiError:
    """The answer to a request that a field spoils. `name`: of the field, where the message does not begin with it."""
    return ApiError(400, message, param=name or _named(message), code=code)


def clean(error: BaseException) -> str:
    """What an error of the engine says, on one line and without the places of this machine."""
    return _PLACES.sub("...", " ".join(str(error).split())) or "the request failed"


def told(error: BaseException) -> ApiError:
    """The answer to an error of any kind."""
    match error:
        case ApiError():
            return error
        case BusyError():
            return overloaded(clean(error))
        case RequestError():
            return ApiError(400, clean(error), param=_named(str(error)))
        case CapabilityError() if str(error) == STOPPED:
            return draining("had no more time for this request (--drain-timeout): send it again")
        case NumericsError():
            return ApiError(500, "the model produced numbers that are no distribution; ask again", code="numerics")
        case OutdraftError():
            return ApiError(500, f"the answer broke off: {clean(error)}", code="decoding")
    return ApiError(500, f"the server met an unexpected {type(error).__name__}; its log has the details", code="defect")


def overloaded(message: str) -> ApiError:
    """The answer of a server that has too much to do."""
    return ApiError(503, message, code="overloaded", headers={"Retry-After": "1"})


def draining(what: str) -> ApiError:
    """The answer of a server that ends. `what`: the rest of its sentence."""
    return ApiError(503, f"the server is draining and {what}", code="draining", headers={"Retry-After": "5"})


def broke_off(error: Exception) -> ApiError:
    """The end of a stream that an error has cut short. It is written into the log, as its status cannot show it."""
    found = told(error)
    if found.status == 500:
        _log.error("a stream broke off", exc_info=error)
    return found


def renamed(error: ApiError, names: Mapping[str, str]) -> ApiError:
    """The same error where an endpoint has other names for some fields. `names`: patterns, and what to write."""

    def say(text: str) -> str:
        for pattern, name in names.items():
            text = re.sub(pattern, name, text)
        return text

    param = None if error.param is None else say(error.param)
    return ApiError(error.status, say(str(error)), param=param, code=error.code, headers=error.headers)


def _named(message: str) -> str | None:
    """The parameter that a message of ours begins with: "top_p=2 ...", "logit_bias names ...", "the prompt has ..."."""
    if (word := re.match(r"(method|verifier|policy) '", message)) is not None:  # what this engine does not hold
        return f"speculative.{word[1]}"
    found = re.match(r"[a-z_]+(?==|: )|[a-z]+_[a-z_]+(?= )|the (negative )?prompt(?= )", message)
    return found[0].removeprefix("the ").replace(" ", "_") if found else None

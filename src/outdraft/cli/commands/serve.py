"""`outdraft serve`: the engine behind HTTP, for clients of OpenAI's API."""

import logging
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from outdraft.cli.flags import EngineFlags
from outdraft.cli.options import flag
from outdraft.core.errors import ConfigError

if TYPE_CHECKING:
    from outdraft.server.settings import ServerSettings

SUMMARY = "serve a model over HTTP, as OpenAI's API"
EPILOG = """examples:
  outdraft serve --model DIR                                 (then: http://127.0.0.1:8000, a page to chat on)
  outdraft serve --model DIR --draft-model DIR --api-key KEY
  curl localhost:8000/v1/completions --json '{"prompt": "It was late when", "max_tokens": 20}'
see docs/server.md"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFlags:
    """Where it listens, who may ask, and how much."""

    host: str = flag("127.0.0.1", "the address to listen to; 0.0.0.0 is all of this machine's", metavar="ADDRESS")
    port: int = flag(8000, "0 takes a free one")
    served_model_name: tuple[str, ...] = flag((), "what requests call the model; may be repeated", metavar="NAME")
    api_key: tuple[str, ...] = flag((), "a key that may ask; may be repeated; without any, OUTDRAFT_API_KEY's, parted "
                                    "by commas; without these everybody may ask", metavar="KEY")  # fmt: skip
    max_tokens: int | None = flag(None, "the most tokens of one answer")
    max_body_bytes: int = flag(4 << 20, "the largest request")
    body_timeout: float = flag(30.0, "seconds in which the body of a request must have come")
    request_timeout: float | None = flag(None, "seconds that a request may take; it ends with what it has")
    rate_limit: int | None = flag(None, "requests a minute for each key")
    keep_alive: float = flag(15.0, "seconds of silence after which a stream sends a comment")
    drain_timeout: float = flag(30.0, "seconds that running requests have after SIGTERM")
    allow_origins: tuple[str, ...] = flag((), "a web page's origin that may ask; may be repeated", metavar="ORIGIN")
    trust_request_chat_template: bool = flag(False, "a request may bring a chat template of its own")
    tool_call_parser: str = flag("auto", "how the model writes calls of functions: hermes, llama3, mistral; auto: "
                                 "by its chat template; none", metavar="NAME")  # fmt: skip
    reasoning_parser: str = flag("auto", "how the model marks what it thinks: qwen3, deepseek_r1; auto: by its chat "
                                 "template; none", metavar="NAME")  # fmt: skip
    ssl_certfile: str | None = flag(None, "serve HTTPS with this certificate", metavar="FILE")
    ssl_keyfile: str | None = flag(None, "and this private key", metavar="FILE")
    log_requests: bool = flag(False, "write prompts and answers into the log, not only their sizes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """An engine, and the server before it."""

    engine: EngineFlags = field(metadata={"title": "engine"})
    server: ServerFlags = field(metadata={"title": "server"})


def run(options: Options) -> int:
    """Serve until a signal ends it."""
    try:
        from outdraft.server.serve import serve
    except ImportError as error:
        raise ConfigError(f"the server needs {error.name}: pip install 'outdraft[server]'") from error
    from outdraft.cli.console import make_console
    from outdraft.server.service import Service

    settings = _settings(options)
    certificate, key = _tls(options.server)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    console, name = make_console(), settings.served_model_name[0]
    with options.engine.load() as llm:
        serve(
            Service(llm, settings), host=options.server.host, port=options.server.port,
            ssl_certfile=certificate, ssl_keyfile=key,
            ready=lambda address: console.print(f"{name} is served at {address}", markup=False),
        )  # fmt: skip
    return 0


def _settings(options: Options) -> "ServerSettings":
    from outdraft.server.settings import ServerSettings

    given = options.server
    keys = given.api_key or tuple(key for key in os.environ.get("OUTDRAFT_API_KEY", "").split(",") if key)
    return ServerSettings(
        served_model_name=given.served_model_name or (options.engine.model,), api_keys=keys,
        max_tokens=given.max_tokens, max_body_bytes=given.max_body_bytes,
        body_timeout=given.body_timeout, timeout=given.request_timeout,
        rate_limit=given.rate_limit, keep_alive=given.keep_alive, drain_timeout=given.drain_timeout,
        allow_origins=given.allow_origins, trust_request_chat_template=given.trust_request_chat_template,
        tool_call_parser=given.tool_call_parser, reasoning_parser=given.reasoning_parser,
        log_requests=given.log_requests,
    )  # fmt: skip


def _tls(given: ServerFlags) -> tuple[Path | None, Path | None]:
    """Certificate and key, both or neither. Raises `ConfigError` for a file that is not there."""
    if (given.ssl_certfile is None) != (given.ssl_keyfile is None):
        raise ConfigError("ssl_certfile and ssl_keyfile belong together: give both, or neither")
    files = [None if one is None else Path(one) for one in (given.ssl_certfile, given.ssl_keyfile)]
    for one in files:
        if one is not None and not one.is_file():
            raise ConfigError(f"there is no file {one}: name the certificate and its private key, in PEM")
    return files[0], files[1]

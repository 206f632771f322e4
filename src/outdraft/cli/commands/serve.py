"""`outdraft serve`: the engine behind HTTP, for clients of OpenAI's API."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outdraft.cli.flags import KeepingFlags, read_file
from outdraft.cli.options import argument, flag, flag_name, given_names
from outdraft.options.errors import ConfigError
from outdraft.options.paths import user_path

if TYPE_CHECKING:
    from outdraft.server.fleet.on_ray.settings import ReplicaSettings
    from outdraft.server.serve import Certificate
    from outdraft.server.settings import ServerSettings

SUMMARY = "serve a model over HTTP, as OpenAI's API"
EPILOG = """examples:
  outdraft serve --model DIR                                 # then: http://127.0.0.1:8000, a page to chat on
  outdraft serve --model DIR --draft-model DIR --api-key KEY
  outdraft serve DIR --speculative-config '{"method": "ngram", "num_speculative_tokens": 8}'
  outdraft serve DIR --host 0.0.0.0 --port 8443 --ssl-certfile cert.pem --ssl-keyfile key.pem --api-key-file keys
  curl localhost:8000/v1/completions --json '{"prompt": "It was late when", "max_tokens": 20}'
see docs/server.md and docs/deploy.md"""
_PLACES = ("model", "draft_model", "head", "datastore")  # flags of an engine that may name a place


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFlags:
    """Where it listens, who may ask, and how much."""

    host: str = flag("127.0.0.1", "the address to listen to; 0.0.0.0 is all of this machine's", metavar="ADDRESS")
    port: int = flag(8000, "0 takes a free one")
    served_model_name: tuple[str, ...] = flag(
        (), "what requests call the model; may be repeated; by default its name, without its path", metavar="NAME"
    )
    api_key: tuple[str, ...] = flag(
        (),
        "a key that may ask; may be repeated; without any, OUTDRAFT_API_KEY's, parted "
        "by commas; without these every client may ask",
        metavar="KEY",
    )
    api_key_file: str | None = flag(
        None, "keys that may ask, one a line; others of the machine see no word of it", metavar="FILE"
    )
    max_tokens: int | None = flag(None, "the most tokens of one answer")
    max_prompts: int = flag(64, "the most prompts of one request")
    max_texts: int = flag(64, "the most texts of one request: prompts times n")
    max_body_bytes: int = flag(4 << 20, "the largest request")
    max_schema_bytes: int = flag(64 << 10, "the largest JSON schema, grammar or pattern in a request")
    head_timeout: float = flag(10.0, "seconds in which the headers of a request must have come")
    body_timeout: float = flag(30.0, "seconds in which the body of a request must have come")
    send_timeout: float = flag(60.0, "seconds after which a client that takes nothing of its answer is given up")
    max_connections: int = flag(800, "the most connections at once")
    request_timeout: float | None = flag(None, "seconds that a request may take; it ends with what it has")
    rate_limit: int | None = flag(None, "requests a minute for each key")
    stream_interval: int = flag(
        0,
        "tokens of a streamed chunk, where the request says nothing: 1 sends them one by "
        "one, 0 what each pass has written",
    )
    keep_alive: float = flag(15.0, "seconds of silence after which a stream sends a comment; 0: never")
    drain_timeout: float = flag(30.0, "seconds that running requests have after SIGTERM")
    allow_origins: tuple[str, ...] = flag((), "a web page's origin that may ask; may be repeated", metavar="ORIGIN")
    trust_request_chat_template: bool = flag(False, "a request may bring a chat template of its own")
    special_tokens_in_messages: str = flag(
        "never",
        "whether the name of a control token in a message (<|im_end|>) is that token, and not text: never, always, or "
        "asked: where the request says so",
        metavar="NAME",
    )
    tool_call_parser: str = flag(
        "auto",
        "how the model writes calls of functions: hermes, llama3, mistral; auto: by its chat template; none",
        metavar="NAME",
    )
    reasoning_parser: str = flag(
        "auto",
        "how the model marks what it thinks: qwen3, deepseek_r1; auto: by its chat template; none",
        metavar="NAME",
    )
    kv_events: bool = flag(False, "show routers at /kv_events which prefixes the cache holds; it needs prefix caching")
    ssl_certfile: str | None = flag(None, "serve HTTPS with this certificate, in PEM", metavar="FILE")
    ssl_keyfile: str | None = flag(None, "and this private key", metavar="FILE")
    log_requests: bool = flag(False, "write prompts and answers into the log, not only their sizes")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptFlags:
    """A draft that learns (docs/adaptation.md)."""

    adapt: bool = flag(False, "the head or draft model keeps learning from what is served; ids of requests go to disk")
    adapt_room: str | None = flag(
        None, "with --adapt, where requests and versions lie; default: a place in the cache", metavar="DIR"
    )
    adapt_opt_in: bool = flag(False, "with --adapt, learn only from requests that say adapt: true")
    adapt_options: Mapping[str, Any] = flag({}, "with --adapt, another option: days=7, num_kept=500, learner=false")

    def settings(self) -> dict[str, Any]:
        """What they say to `LLM`. Raises `ConfigError` for what means nothing without --adapt."""
        room = {"room": str(user_path(self.adapt_room).absolute())} if self.adapt_room else {}
        given = {**room, **self.adapt_options}
        if not self.adapt and (given or self.adapt_opt_in):
            raise ConfigError(
                "--adapt-room, --adapt-opt-in and --adapt-options belong to --adapt: add it, or leave them out"
            )
        return {"adapt": {**given, **({"opt_in": True} if self.adapt_opt_in else {})}} if self.adapt else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class RayFlags:
    """Several engines behind one address (docs/scale.md)."""

    ray: bool = flag(False, "run the server as an application of Ray Serve (docs/scale.md)")
    ray_address: str | None = flag(
        None, "the Ray cluster; without it Ray runs on this machine alone", metavar="ADDRESS"
    )
    replicas: int = flag(1, "engines; with --max-replicas, the fewest")
    max_replicas: int | None = flag(None, "the most engines; Ray starts and ends them by load")
    target_ongoing_requests: int = flag(8, "requests of an engine; with more of them Ray starts another engine")
    cpus_per_replica: float = flag(1.0, "cores that Ray reserves for an engine")
    ray_routing: bool = flag(False, "Ray chooses the engine of a request by load alone, not by what is warm where")

    def settings(self) -> "ReplicaSettings":
        """As the deployment takes them. Raises `ConfigError` naming what is out of range."""
        from outdraft.server.fleet.on_ray.settings import ReplicaSettings

        return ReplicaSettings(
            replicas=self.replicas,
            max_replicas=self.max_replicas,
            cpus=self.cpus_per_replica,
            target_ongoing_requests=self.target_ongoing_requests,
            affinity=not self.ray_routing,
        )

    def check_unused(self) -> None:
        """Without --ray, raise `ConfigError` for what means nothing there."""
        for name in given_names(self):
            raise ConfigError(f"--{flag_name(name)} is for several engines: add --ray, or leave it out")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """An engine, and the server before it."""

    place: str | None = argument(None, "the same as --model", metavar="MODEL")
    speculative_decoding: bool = flag(
        False, "draft with the default drafter, as the server does without this flag, too; it is outdraft's own word"
    )
    engine: KeepingFlags = field(metadata={"title": "engine"})
    server: ServerFlags = field(metadata={"title": "server"})
    adapt: AdaptFlags = field(metadata={"title": "a draft that learns"})
    ray: RayFlags = field(metadata={"title": "several engines"})


def run(options: Options) -> int:
    """Serve until a signal ends it."""
    try:
        from outdraft.server.serve import check_address, serve
    except ImportError as error:
        raise ConfigError(f"the server needs {error.name}: pip install 'outdraft[server]'") from error
    from outdraft.cli.console import make_console, say
    from outdraft.server.service import Service

    options = replace(options, place=None, engine=options.engine.naming(options.place))
    _check_speculation(options)
    settings, certificate = _settings(options), _certificate(options.server)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    console, name = make_console(), settings.served_model_name[0]
    where: dict[str, Any] = {"host": options.server.host, "port": options.server.port, "certificate": certificate}
    where["ready"] = lambda address: say(console, f"{name} is served at {address}")
    if options.ray.ray:
        _run_on_ray(options, settings, where)
        return 0
    options.ray.check_unused()
    check_address(options.server.host, options.server.port)
    with options.engine.load(**options.adapt.settings()) as llm:
        serve(Service(llm, settings), **where)
    return 0


def _run_on_ray(options: Options, settings: "ServerSettings", where: Mapping[str, Any]) -> None:
    """`where`: the address, the certificate, and what is called when requests are taken."""
    try:
        from outdraft.server.fleet.on_ray.serve import serve_on_ray
    except ImportError as error:
        raise ConfigError(f"--ray needs {error.name}: pip install 'outdraft[ray]'") from error
    from outdraft.server.serve import check_address

    scale = options.ray.settings()
    check_address(options.server.host, options.server.port)
    if options.engine.no_cache:
        os.environ["OUTDRAFT_CACHE"] = "off"  # Ray's processes on this machine inherit it
    engine = {**from_anywhere(options.engine.settings()), **options.adapt.settings()}
    serve_on_ray(engine, settings, scale, address=options.ray.ray_address, **where)


def from_anywhere(engine: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of an engine as other processes read them: paths that begin at the root of the file system."""
    found = {name: engine[name] for name in _PLACES if engine.get(name) and Path(engine[name]).exists()}
    return {**engine, **{name: str(Path(place).resolve()) for name, place in found.items()}}


def _check_speculation(options: Options) -> None:
    engine, config = options.engine, options.engine.speculative_config
    plain = "none" in (engine.drafter, config.get("method")) or engine.num_speculative_tokens == 0
    if options.speculative_decoding and plain:
        raise ConfigError(
            "speculative_decoding asks for drafts, and --drafter none or no draft tokens for plain "
            "decoding: leave one out"
        )


def _settings(options: Options) -> "ServerSettings":
    from outdraft.server.settings import ServerSettings

    given, model = options.server, options.engine.model
    others = "host port served_model_name api_key api_key_file request_timeout ssl_certfile ssl_keyfile".split()
    return ServerSettings(
        served_model_name=given.served_model_name or (_name_of(model),),
        api_keys=_keys(given),
        model_path="" if given.served_model_name else model,
        timeout=given.request_timeout,
        **{one.name: getattr(given, one.name) for one in fields(given) if one.name not in others},
    )


def _name_of(model: str) -> str:
    """Where it lies is nothing for clients, or for /metrics."""
    path = user_path(model)
    return path.resolve().name if path.exists() else model


def _keys(given: ServerFlags) -> tuple[str, ...]:
    """Of the flags and the file; without any, those of the environment. What is given must hold a key, because without
    keys every client may ask."""
    listed = read_file("api_key_file", given.api_key_file)
    if listed is not None and not listed.split():
        raise ConfigError(f"api_key_file {given.api_key_file} holds no key: write one a line, or leave it out")
    keys = (*map(str.strip, given.api_key), *(line.strip() for line in (listed or "").splitlines() if line.strip()))
    if keys or (told := os.environ.get("OUTDRAFT_API_KEY")) is None:
        return keys
    if not (named := tuple(key.strip() for key in told.split(",") if key.strip())):
        raise ConfigError("OUTDRAFT_API_KEY is set and holds no key: write keys into it, parted by commas, or unset it")
    return named


def _certificate(given: ServerFlags) -> "Certificate | None":
    from outdraft.server.serve import Certificate

    certfile, keyfile = given.ssl_certfile, given.ssl_keyfile
    if certfile is None and keyfile is None:
        return None
    if certfile is None or keyfile is None:
        raise ConfigError("ssl_certfile and ssl_keyfile belong together: give both, or neither")
    return Certificate(certfile=user_path(certfile), keyfile=user_path(keyfile))

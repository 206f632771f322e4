"""What the operator of a server decides: names, keys, limits, and how long things may take."""

from dataclasses import dataclass
from typing import Literal

from outdraft.options.checked import check_fields
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import check_range

MIB = 1 << 20
SpecialTokens = Literal["never", "asked", "always"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Raises `ConfigError` naming the setting that is out of range."""

    served_model_name: tuple[str, ...]  # the first one stands in answers; a request may name any of them
    model_path: str = ""  # a request may name the model by it too, as with vLLM; /v1/models does not list it
    api_keys: tuple[str, ...] = ()  # empty: every client may ask
    max_body_bytes: int = 4 * MIB  # of a request
    head_timeout: float = 10.0  # seconds in which the head of a request must have come
    body_timeout: float = 30.0  # seconds in which its body must have come
    send_timeout: float = 60.0  # seconds after which a client that takes nothing of its answer is given up
    max_connections: int = 800  # at once
    max_schema_bytes: int = 64 * 1024  # of a JSON schema, a grammar or a pattern in a request
    max_prompts: int = 64  # of one request
    max_texts: int = 64  # of one request: prompts times n
    max_tokens: int | None = None  # of one answer; None: what the context holds
    timeout: float | None = None  # seconds that one request may take; it then ends with what it has
    rate_limit: int | None = None  # requests a minute for each key (or address, where there are no keys)
    stream_interval: int = 0  # tokens of a streamed chunk, where the request says nothing; 0: what a pass writes
    keep_alive: float = 15.0  # seconds of silence after which a stream sends a comment; 0: never
    drain_timeout: float = 30.0  # seconds that running requests have after SIGTERM
    allow_origins: tuple[str, ...] = ()  # web pages of other origins that may ask
    trust_request_chat_template: bool = False  # a request may bring a chat template of its own
    special_tokens_in_messages: SpecialTokens = "never"  # whether a message may hold control tokens, or may ask to
    tool_call_parser: str = "auto"  # how the model writes calls; auto: by its chat template; none: it calls none
    reasoning_parser: str = "auto"  # how it marks what it thinks; likewise
    kv_events: bool = False  # show which prefixes the key/value cache holds, for routers: GET /kv_events
    log_requests: bool = False  # prompts and answers in the log; otherwise only their sizes

    def __post_init__(self) -> None:
        check_fields(self)
        check_range(self, "max_body_bytes", "max_schema_bytes", least=1024)
        check_range(self, "max_prompts", "max_texts", "max_tokens", "rate_limit", "max_connections", least=1)
        check_range(self, "keep_alive", "drain_timeout", "stream_interval", least=0)
        check_range(self, "head_timeout", "body_timeout", "send_timeout", "timeout", least=0.001)
        if not self.served_model_name or not all(self.served_model_name):
            raise ConfigError("served_model_name is empty: give the model a name that requests can use")
        if not all(self.api_keys):
            raise ConfigError("one of the api_keys is empty: leave it out, or give it at least one character")

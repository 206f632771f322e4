"""Flags of a running server, and how the flags of an engine and of sampling are said in a request to one."""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

from outdraft.cli.flags import EngineFlags, SamplingFlags
from outdraft.cli.options import flag, flag_name, given_names
from outdraft.options.errors import ConfigError

_SPECULATIVE = {  # flag -> key of `speculative`
    "drafter": "method",
    "num_speculative_tokens": "num_speculative_tokens",
    "verifier": "verifier",
    "policy": "policy",
}
_ALWAYS = ("max_tokens", "temperature", "top_p")  # a server's own defaults are others


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFlags:
    """Where it is, and the key to it."""

    server: str | None = flag(None, "ask the server that runs at this address, and load no model", metavar="URL")
    api_key: str | None = flag(None, "with --server, the key to it; by default that of OUTDRAFT_API_KEY", metavar="KEY")

    def check(self) -> None:
        """Raise `ConfigError` for a key without a server."""
        if self.server is None and self.api_key is not None:
            raise ConfigError("api_key is for a server: name it as --server URL, or leave --api-key out")


def asked(engine: EngineFlags, sampling: SamplingFlags, references: Seq[str]) -> dict[str, Any]:
    """The fields of a request. Raises `ConfigError` naming a flag of an engine, which the server has of its own."""
    body: dict[str, Any] = {"references": list(references)} if references else {}
    body |= {name: getattr(sampling, name) for name in (*_ALWAYS, *given_names(sampling))}
    told: dict[str, Any] = {}
    for name in given_names(engine):
        if name == "model":
            body["model"] = engine.model
        elif name in _SPECULATIVE:
            told[_SPECULATIVE[name]] = getattr(engine, name)
        else:
            raise ConfigError(
                f"--{flag_name(name)} is of an engine, and the server has its own: leave it out, or give it to "
                "`outdraft serve`"
            )
    if told:
        body["speculative"] = False if told.get("method") == "none" else told
    return body

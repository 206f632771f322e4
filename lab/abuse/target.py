"""A server as a client knows it: its address, and what to send along."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """`kind`: plain, tls or keys."""

    kind: str
    address: str
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def host(self) -> str:
        return urlsplit(self.address).hostname or ""

    @property
    def port(self) -> int:
        return urlsplit(self.address).port or 0

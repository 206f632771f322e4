"""The requests of a batch: lines of JSON as OpenAI's batch files have them.

    {"custom_id": "7", "method": "POST", "url": "/v1/completions", "body": {"prompt": "It was late when"}}

Every request that is sampled has a seed: its own, or one that the run's seed and its id decide. So its text depends on
neither the others of its batch, nor the machine, nor how often the run was begun.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import orjson

from outdraft.options.errors import ConfigError
from outdraft.options.shown import shown

_URLS = ("/v1/completions", "/v1/chat/completions", "/inference/v1/generate")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchJob:
    """One request. `body`: what is sent to the endpoint at `url`."""

    custom_id: str
    url: str
    body: dict[str, Any] = field(hash=False)

    def seeded(self, seed: int) -> "BatchJob":
        """The same, with a seed where it has none and is sampled."""
        inner = self.url == "/inference/v1/generate"
        settings = self.body.get("sampling_params") or {} if inner else self.body
        if not isinstance(settings, dict) or settings.get("seed") is not None or settings.get("temperature") == 0:
            return self
        settings = {**settings, "seed": seed_of(seed, self.custom_id)}
        return replace(self, body={**self.body, "sampling_params": settings} if inner else settings)


def seed_of(seed: int, custom_id: str) -> int:
    """The seed of one request: no two of a run share any, whatever the run's is."""
    digest = blake2b(f"outdraft batch {seed} {custom_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def read_jobs(path: str | Path) -> list[BatchJob]:
    """All requests of a file. Raises `ConfigError` naming the line that is none, and an id that comes twice."""
    try:
        with Path(path).open("rb") as lines:
            return list(_jobs(lines, str(path)))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error}; name a file with one request a line") from error


def _jobs(lines: Iterable[bytes], name: str) -> Iterator[BatchJob]:
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        job = _job(line, f"{name}, line {number}")
        if (first := seen.setdefault(job.custom_id, number)) != number:
            raise ConfigError(
                f"{name}, line {number}: custom_id {shown(job.custom_id)} is that of line {first}, too: give each "
                "request its own"
            )
        yield job


def _job(line: bytes, where: str) -> BatchJob:
    try:
        read = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"{where} is no JSON: {error}; write one request a line") from error
    if not isinstance(read, dict):
        raise ConfigError(f'{where} is {shown(read)}: write {{"custom_id": ..., "url": ..., "body": {{...}}}}')
    custom_id, url, body = read.get("custom_id"), read.get("url"), read.get("body")
    if not isinstance(custom_id, str) or not custom_id:
        raise ConfigError(f"{where} has custom_id={shown(custom_id)}: give each request a text of its own there")
    if read.get("method", "POST") != "POST" or url not in _URLS:
        raise ConfigError(f"{where} asks {shown(read.get('method'))} {shown(url)}: POST to one of {', '.join(_URLS)}")
    if not isinstance(body, dict) or body.get("stream"):
        raise ConfigError(f"{where} has body={shown(body)}: it is the request's JSON object, without stream")
    if unknown := sorted(read.keys() - {"custom_id", "method", "url", "body"}):
        raise ConfigError(f"{where} has {shown(unknown[0])}, which the server does not read: put settings into body")
    return BatchJob(custom_id=custom_id, url=url, body=body)

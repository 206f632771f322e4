"""Another program under the same load: a running server with OpenAI's completions, asked for streams.

    --peer llama=http://127.0.0.1:8080      its name in the tables, and where it listens

Prompts are token ids. A piece of the stream is not a token: an answer's tokens are counted by the ids that the server
gives (vLLM's `return_token_ids`, llama.cpp's `return_tokens`), else by its `usage`, else taken to be as many as were
asked for. llama.cpp gives its draft tokens with the last piece (`timings`), and so does `outdraft serve` (`metrics`),
so that their tokens per pass are known.
"""

import asyncio
import json
import os
import re
import secrets
from collections.abc import Callable, Mapping
from time import perf_counter, process_time, sleep
from typing import Any

from outdraft.bench.load.clients import Answer
from outdraft.bench.load.http_stream import HttpError, read_events, read_json
from outdraft.bench.load.jobs import LoadJob
from outdraft.bench.load.processes import find_processes, processor_seconds, wait_until_idle
from outdraft.engine.stats import RequestStats
from outdraft.options.errors import ConfigError, OutdraftError
from outdraft.options.params import SamplingParams

FIELDS: Mapping[str, Any] = {  # beside OpenAI's own; a program that does not know one leaves it alone
    "ignore_eos": True,
    "cache_prompt": False,  # llama.cpp: nothing of an earlier prompt may be used again
    "return_token_ids": True,  # vLLM
    "return_tokens": True,  # llama.cpp
}
_UNKNOWN = {"outdraft": ("cache_prompt", "return_tokens")}  # who refuses a field that it does not know
_PAUSE = 0.25  # seconds in which a server's threads fall asleep
_URL = re.compile(r"([^=:,\s]+)=(https?://\S+)")


class PeerError(OutdraftError):
    """A peer failed; the message quotes it."""


def parse_server(text: str) -> tuple[str, str]:
    """Label and base URL of "NAME=URL"; raises `ConfigError` for another spelling."""
    found = _URL.fullmatch(text)
    if found is None:
        raise ConfigError(
            f"peer {text!r}: under --load a peer is a running server; write NAME=URL, for example "
            "llama=http://127.0.0.1:8080"
        )
    return found[1], found[2].rstrip("/").removesuffix("/v1")


class HttpServer:
    """One server. `fields`: further fields of every request, or None for one that is to be left out.

    Raises `PeerError` if no server answers there.
    """

    foreign = True

    def __init__(self, label: str, url: str, config: Mapping[str, Any], fields: Mapping[str, Any]) -> None:
        self._label, self._url = label, url
        try:
            listed = asyncio.run(read_json(f"{url}/v1/models")).get("data") or [{}]
        except HttpError as error:
            raise self._error(error) from error
        self._model = str(listed[0].get("id", "default"))
        owner = listed[0].get("owned_by")
        self._fields = {**FIELDS, **dict.fromkeys(_UNKNOWN.get(owner, ())), **fields}
        told = {"name": label, "url": url, "model": self._model, "owner": owner, **fields}
        self.config = {**config, "peer": told}
        self._pids = find_processes(url)
        self._salt = ""  # of the round

    def promises(self, params: SamplingParams) -> bool:
        """It owes us nothing: another order of sums may choose otherwise where two tokens are nearly as likely."""
        return False

    def prepare(self) -> None:
        """It finds nothing of an earlier round: its cache of prompts is off by the fields of the request, and what its
        drafters remember (ours, vLLM's) is kept apart by salt."""
        self._salt = secrets.token_hex(8)

    def work_seconds(self) -> float | None:
        """Of its processes, where they run on this machine and are known, and of the clients."""
        its_own = processor_seconds(self._pids)
        return None if its_own is None else its_own + process_time()

    def rest(self) -> None:
        """Where its processes are not known, a pause must do."""
        if self._pids:
            wait_until_idle([*self._pids, os.getpid()])
        else:
            sleep(_PAUSE)

    async def ask(self, job: LoadJob) -> Answer:
        """Raises `PeerError` that quotes what the server said."""
        try:
            return await self._ask(job)
        except HttpError as error:
            raise self._error(error) from error

    async def _ask(self, job: LoadJob) -> Answer:
        body = {
            "model": self._model,
            "prompt": list(job.ids),
            "max_tokens": job.params.max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            "cache_salt": self._salt or None,
            **self._fields,
        }
        body = {name: value for name, value in body.items() if value is not None}
        arrivals: list[float] = []
        pieces: list[str] = []
        ids: list[tuple[int, ...]] = []  # of each piece
        counted: int | None = None
        passes: Callable[[int], RequestStats] | None = None
        began = perf_counter()
        async for event in read_events(f"{self._url}/v1/completions", body):
            told = json.loads(event)
            if "error" in told:
                raise HttpError(f"it says {told['error']}")
            counted = (told.get("usage") or {}).get("completion_tokens", counted)
            passes = _counters(told) or passes
            for choice in told.get("choices") or ():
                new = choice.get("token_ids") or choice.get("tokens") or told.get("tokens") or ()
                if choice.get("text") or new:
                    arrivals.append(perf_counter() - began)
                    pieces.append(choice.get("text") or "")
                    ids.append(tuple(new))
        if not arrivals:
            raise HttpError("its answer has no text")
        whole = tuple(token for piece in ids for token in piece) if all(ids) else None
        num_tokens = len(whole) if whole else counted or int(job.params.max_tokens or len(arrivals))
        # without ids all pieces are taken to be alike
        num_first = len(ids[0]) if whole else max(1, round(num_tokens / len(arrivals)))
        return Answer(
            arrivals=tuple(arrivals),
            num_first=num_first,
            num_tokens=num_tokens,
            text="".join(pieces),
            token_ids=whole,
            stats=None if passes is None else passes(num_tokens),
        )

    def _error(self, error: HttpError) -> PeerError:
        return PeerError(f"peer {self._label} at {self._url}: {error}; start its server, or leave --peer out")


def _counters(told: Mapping[str, Any]) -> Callable[[int], RequestStats] | None:
    """What a piece reports of drafting: the counters of an answer with so many tokens. None: nothing."""
    if (timings := told.get("timings")) is not None:  # llama.cpp: every pass brings one token besides the accepted ones
        drafted, accepted = int(timings.get("draft_n", 0)), int(timings.get("draft_n_accepted", 0))
        return lambda num: _stats(num, num - accepted, drafted, accepted)
    found = (told.get("metrics") or {}).get("speculative_decoding")
    if found is None or "tokens_per_target_pass" not in found:
        return None
    drafted, accepted = found["num_draft_tokens"], found["num_accepted_draft_tokens"]
    return lambda num: _stats(num, round(num / (found["tokens_per_target_pass"] or 1)), drafted, accepted)


def _stats(num_tokens: int, num_steps: int, drafted: int, accepted: int) -> RequestStats:
    return RequestStats(
        num_tokens=num_tokens, num_steps=num_steps, num_draft_tokens=drafted, num_accepted_tokens=accepted
    )

"""A closed loop: C clients take requests from one list, and each takes the next when its answer is whole.

Times are taken where a client reads a piece of its answer, for an engine in this process and for a server alike.
Data in: who answers, requests, the number of clients; data out: `Answer`s, and the seconds of the whole.
"""

import asyncio
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol

from outdraft.bench.load.jobs import LoadJob
from outdraft.engine.stats import RequestStats
from outdraft.options.params import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One whole answer. `arrivals`: when each piece came, in seconds since the request was sent."""

    arrivals: tuple[float, ...]
    num_first: int  # tokens of the first piece
    num_tokens: int
    text: str
    token_ids: tuple[int, ...] | None = None  # None: a server that gives text alone
    stats: RequestStats | None = None  # None: another program that does not report them

    @property
    def first_seconds(self) -> float:
        """From asking to the first piece."""
        return self.arrivals[0]

    @property
    def gaps(self) -> list[float]:
        """Seconds between two pieces: what a reader waits for the next words."""
        return [later - sooner for sooner, later in zip(self.arrivals, self.arrivals[1:], strict=False)]

    @property
    def token_seconds(self) -> float | None:
        """Seconds of a token after the first piece; None where nothing is after it."""
        after = self.num_tokens - self.num_first
        return (self.arrivals[-1] - self.arrivals[0]) / after if after > 0 else None


class Server(Protocol):
    """Who answers. `config`: plain data for the record. `foreign`: another program, which owes us no text."""

    config: dict[str, Any]
    foreign: bool

    def promises(self, params: SamplingParams) -> bool:
        """Whether it owes us plain decoding's text."""

    def prepare(self) -> None:
        """Before a round: nothing of an earlier one may help."""

    def work_seconds(self) -> float | None:
        """Processors' seconds so far, of the engine and of the clients in this process; None where it is not known."""

    def rest(self) -> None:
        """After a round: return when its threads sleep, so that the next one has the cores."""

    async def ask(self, job: LoadJob) -> Answer:
        """Send one request and read its answer to the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One round: the answers by the numbers of their requests, and the seconds from the first request to the last
    piece. `work_seconds`: of processors, of engine and clients; None where it is not known."""

    answers: dict[int, Answer]
    seconds: float
    work_seconds: float | None

    @property
    def num_tokens(self) -> int:
        return sum(answer.num_tokens for answer in self.answers.values())


def serve(server: Server, jobs: Seq[LoadJob], clients: int) -> Served:
    """Have `clients` of them work through the requests. The first error ends the round and is raised."""
    server.prepare()
    before = server.work_seconds()
    answers, seconds = asyncio.run(_serve(server, jobs, clients))
    after = server.work_seconds()
    work = None if before is None or after is None else after - before
    server.rest()
    return Served(answers=answers, seconds=seconds, work_seconds=work)


async def _serve(server: Server, jobs: Seq[LoadJob], clients: int) -> tuple[dict[int, Answer], float]:
    waiting, answers = iter(jobs), dict[int, Answer]()
    began = perf_counter()
    running = [asyncio.create_task(_client(server, waiting, answers)) for _ in range(min(clients, len(jobs)))]
    try:
        await asyncio.gather(*running)
    finally:
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    return answers, perf_counter() - began


async def _client(server: Server, waiting: Iterator[LoadJob], answers: dict[int, Answer]) -> None:
    for job in waiting:  # one list for all of them
        answers[job.number] = await server.ask(job)

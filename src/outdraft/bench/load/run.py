"""The whole load: for each number of clients, interleaved rounds of every method, then a line for each.

Plain decoding takes part in every round, because a speed-up is a ratio within one; what is in the record
already is left out. Data in: a `LoadPlan` and a `RecordFile`; data out: lines in the journal, and a `BenchOutcome`.
"""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from outdraft.bench.fingerprint import digest
from outdraft.bench.load.clients import Served, Server, serve
from outdraft.bench.load.jobs import LoadJob
from outdraft.bench.load.row import make_row
from outdraft.bench.machine import describe
from outdraft.bench.neighbours import busy_neighbours
from outdraft.bench.runner import BenchOutcome
from outdraft.bench.subject import BenchTarget
from outdraft.bench.trial import PLAIN, order
from outdraft.bench.write import RecordFile, as_record
from outdraft.options.params import SamplingParams

FEWEST_REQUESTS = 8  # of a round
WARM_UP_TOKENS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """What to measure. `servers` holds plain decoding, as "none", and every other server by label."""

    subject: BenchTarget
    servers: Mapping[str, Server]
    jobs: Seq[LoadJob]  # as many as the greatest number of clients needs
    params: SamplingParams  # of which the jobs' differ in length and seed
    levels: Seq[int]  # numbers of clients
    requests: int  # of each round; 0: twice the clients, at least `FEWEST_REQUESTS`
    rounds: int
    engine: Mapping[str, Any] = field(default_factory=dict)  # how requests are scheduled: words of `LLM`
    neighbours: int = 0

    def jobs_at(self, clients: int) -> Seq[LoadJob]:
        return self.jobs[: num_requests(clients, self.requests)]

    @property
    def num_answers(self) -> int:
        """Answers to write at most: the unit of progress."""
        return sum(len(self.jobs_at(level)) for level in self.levels) * len(self.servers) * self.rounds


def num_requests(clients: int, requests: int) -> int:
    """Requests of a round: what was asked for, else two for each client, and not too few for a median."""
    return requests or max(FEWEST_REQUESTS, 2 * clients)


class LoadBench:
    """One run. `tell(message, n)` hears what goes on, and how many answers are done with."""

    def __init__(
        self, plan: LoadPlan, journal: RecordFile, tell: Callable[[str, int], None] = lambda message, n: None
    ) -> None:
        self.plan, self.journal, self.tell = plan, journal, tell
        self.machine = describe(str(plan.subject.plain.config["device"]))
        self.machine |= {"neighbours": plan.neighbours} if plan.neighbours else {}
        self.outcome = BenchOutcome()

    def run(self) -> BenchOutcome:
        """Everything that is not there yet, few clients first."""
        with busy_neighbours(self.plan.neighbours):
            for clients in self.plan.levels:
                self._run_level(clients)
        return self.outcome

    def _run_level(self, clients: int) -> None:
        plan, jobs = self.plan, self.plan.jobs_at(clients)
        keys = {label: self._key(label, clients, jobs) for label in plan.servers}
        self.outcome.key = keys[PLAIN]
        missing = [label for label in plan.servers if keys[label] not in self.journal.keys]
        self.outcome.num_skipped += len(plan.servers) - len(missing)
        takes_part = list(dict.fromkeys([PLAIN, *missing])) if missing else []
        self.tell("", (len(plan.servers) - len(takes_part)) * plan.rounds * len(jobs))
        if not missing:
            return
        for label in takes_part:
            self.tell(f"{clients} clients, warming up: {label}", 0)
            serve(plan.servers[label], _shorter(jobs[:clients]), clients)
        rounds: dict[str, list[Served]] = {label: [] for label in takes_part}
        for number in range(plan.rounds):
            for label in order(takes_part, number):
                self.tell(f"{clients} clients, round {number + 1}: {label}", 0)
                rounds[label].append(serve(plan.servers[label], jobs, clients))
                self.tell("", len(jobs))
        for label in missing:
            self._write(label, clients, jobs, rounds, keys[label])

    def _write(self, label: str, clients: int, jobs: Seq[LoadJob], rounds: Mapping[str, Seq[Served]], key: str) -> None:
        server = self.plan.servers[label]
        row = make_row(
            label,
            clients,
            rounds[label],
            rounds[PLAIN],
            promised=server.promises(jobs[0].params),
            foreign=server.foreign,
            jobs=_fingerprint(jobs),
            num_prompt_tokens=sum(len(job.ids) for job in jobs),
        )
        common = self._common() | {"config": server.config, "sampling": asdict(self.plan.params)}
        self.journal.append(as_record("load", row, key=key, **common))
        self.outcome.num_rows += 1
        if row.identical is False:
            self.outcome.failed.append(f"{label} with {clients} clients: {row.difference}")

    def _common(self) -> dict[str, Any]:
        return {"model": self.plan.subject.told, "machine": self.machine, "engine": dict(self.plan.engine)}

    def _key(self, label: str, clients: int, jobs: Seq[LoadJob]) -> str:
        config, sampling = self.plan.servers[label].config, asdict(self.plan.params)
        what = {"load": clients, "method": label, "jobs": _fingerprint(jobs), "rounds": self.plan.rounds}
        what |= {"config": config}
        return digest({**self._common(), **what, "sampling": sampling})


def _fingerprint(jobs: Seq[LoadJob]) -> str:
    return digest([[job.ids, job.params.max_tokens, job.params.seed] for job in jobs])


def _shorter(jobs: Seq[LoadJob]) -> list[LoadJob]:
    """The same requests, of a few tokens."""
    return [
        replace(
            job, params=replace(job.params, max_tokens=min(WARM_UP_TOKENS, job.params.max_tokens or WARM_UP_TOKENS))
        )
        for job in jobs
    ]

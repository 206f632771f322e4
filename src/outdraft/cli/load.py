"""`outdraft bench --load 1,4,16`: many requests at once. What is measured is set by the flags of `outdraft bench`.

Data in: what a bench was asked (`BenchInputs`) and `LoadFlags`; data out: a record file, a table, an exit code.
"""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from outdraft.bench.lineup import DEFAULT, RIVALS, Rival
from outdraft.cli.bench_report import measure, report_load
from outdraft.cli.options import flag, flag_name, given_names
from outdraft.options.errors import ConfigError, OutdraftError
from outdraft.options.params import SamplingParams

if TYPE_CHECKING:
    from rich.console import Console

    from outdraft.bench.load.clients import Server
    from outdraft.bench.load.run import LoadPlan
    from outdraft.bench.shelf import Shelf
    from outdraft.bench.subject import BenchTarget
    from outdraft.bench.suites.prompt import Prompt
    from outdraft.engine.llm import LLM

SEATS = 64  # requests that an engine decodes together unless set otherwise
_USUAL = (DEFAULT, "draft_model", "ngram", "eagle")  # of the line-up, where no method is named
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchInputs:
    """What a bench was asked to measure, read and loaded: the same for texts one by one and for many at once.

    `chosen`: the methods that were named; empty: whatever is usual. `strict`: one that does not fit is an error.
    """

    subject: "BenchTarget"
    shelf: "Shelf"
    prompts: "Seq[Prompt]"
    params: SamplingParams
    rounds: int
    chosen: Seq[Rival]
    strict: bool

    def gather(
        self, lineup: Seq[Rival], make: "Callable[[LLM, Rival | None], T]"
    ) -> tuple[dict[str, T], dict[str, str]]:
        """What `make` makes of plain decoding's engine and of each method's, by label; who does not fit, and why."""
        from outdraft.bench.drafts import join_made
        from outdraft.bench.trial import PLAIN

        plain = self.subject.plain
        found, absent = {PLAIN: make(plain, None)}, dict[str, str]()
        for rival in lineup:
            if rival.label == PLAIN:
                continue  # it always takes part
            if rival.label in found:
                raise ConfigError(f"method {rival.label!r} is given twice")
            try:
                found[rival.label] = make(join_made(plain, rival, self.shelf, self.subject.name), rival)
            except OutdraftError as error:
                if self.strict:
                    raise
                absent[rival.label] = str(error)
        return found, absent


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFlags:
    """How many clients, and what they ask."""

    load: str | None = flag(
        None,
        "so many clients at once, each asks anew when its answer is whole: 1,4,16 measures three loads "
        "(docs/bench.md); answers have from half of --max-tokens to all of it, --seed also draws the prompts",
        metavar="N,N,...",
    )
    requests: int = flag(0, "with --load: requests of a round; 0 is two for each client, and at least 8")
    peer_field: Mapping[str, Any] = flag(
        {},
        "with --load: a field of every request to a --peer beside ours (ignore_eos, cache_prompt=false, "
        "cache_salt, return_token_ids, return_tokens); null leaves one out",
    )

    max_num_seqs: int | None = flag(None, "with --load: the most requests that are decoded together; all by default")
    max_num_batched_tokens: int | None = flag(None, "with --load: the most prompt tokens that one pass reads")
    kv_cache_memory: str | None = flag(
        None,
        "with --load: the most memory for keys and values, e.g. 256MiB; a request that finds no room waits "
        "(docs/scheduling.md)",
        metavar="SIZE",
    )

    def settings(self) -> dict[str, Any]:
        """What they say to `LLM`; in a record, how the requests were scheduled."""
        seats = max(SEATS, *self.levels()) if self.max_num_seqs is None else self.max_num_seqs
        given = {"max_num_batched_tokens": self.max_num_batched_tokens, "kv_cache_memory": self.kv_cache_memory}
        return {"max_num_seqs": seats, **{name: value for name, value in given.items() if value is not None}}

    def levels(self) -> list[int]:
        """Numbers of clients, ascending. Raises `ConfigError` naming what is none."""
        words = [word.strip() for word in (self.load or "").split(",")]
        wrong = next((word for word in words if not word.isdecimal() or int(word) < 1), None)
        if wrong is not None:
            raise ConfigError(f"load={self.load!r}: {wrong!r} is no number of clients; write for example --load 1,4,16")
        if self.requests < 0:
            raise ConfigError(f"requests={self.requests}: must be at least 0, which is two for each client")
        levels = sorted({int(word) for word in words})
        if self.requests and self.requests < levels[-1]:
            raise ConfigError(
                f"requests={self.requests}: {levels[-1]} clients need at least one each; leave --requests out, or "
                f"give {levels[-1]} or more"
            )
        return levels

    def check_unused(self, peers: Seq[str]) -> None:
        """Without --load, raise `ConfigError` for what means nothing there. `peers`: of --peer."""
        words = [f"--{flag_name(name)}" for name in given_names(self)]
        words += [f"--peer {one}" for one in peers]
        if words:
            raise ConfigError(f"{words[0]} is for many requests at once: add --load 1,4,16, or leave it out")


def measure_load(
    console: "Console",
    asked: BenchInputs,
    flags: LoadFlags,
    servers: Seq[tuple[str, str]],
    path: Path,
    *,
    neighbours: int,
    as_json: bool,
) -> int:
    """Measure what is not in `path` yet, and show it."""
    from outdraft.bench.load.run import LoadBench
    from outdraft.bench.machine import busy_note
    from outdraft.cli.console import say

    plan, absent = _plan(asked, flags, servers, neighbours)
    notes = [f"at most {plan.num_answers} answers of {plan.params.max_tokens} tokens or fewer", busy_note()]
    outcome = measure(console, path, absent, notes, plan.num_answers, "answers", partial(LoadBench, plan))
    if outcome.num_skipped:
        say(console, f"{outcome.num_skipped} rows were there already, {outcome.num_rows} are new", style="dim")
    return report_load(console, path, as_json=as_json, like=outcome.key, absent=absent)


def _plan(
    asked: BenchInputs, flags: LoadFlags, servers: Seq[tuple[str, str]], neighbours: int
) -> "tuple[LoadPlan, dict[str, str]]":
    """Everything loaded and checked before the first request; and who is left out, and why."""
    from outdraft.bench.load.jobs import make_jobs
    from outdraft.bench.load.over_http import HttpServer
    from outdraft.bench.load.run import LoadPlan, num_requests

    plain, levels = asked.subject.plain, flags.levels()
    assert plain.tokenizer is not None
    params = replace(asked.params, ignore_eos=True)  # with servers and without, so that their rows stand together
    jobs = make_jobs(
        plain.tokenizer,
        asked.prompts,
        num_requests(levels[-1], flags.requests),
        params,
        seed=params.seed or 0,
        max_len=plain.config["max_model_len"],
    )
    taking_part, absent = _ours(asked, without=bool(servers))
    for label, url in servers:
        if label in taking_part:
            raise ConfigError(f"peer {label!r} has the name of another contestant: choose another one, NAME={url}")
        taking_part[label] = HttpServer(label, url, plain.config, flags.peer_field)
    plan = LoadPlan(
        subject=asked.subject,
        servers=taking_part,
        jobs=jobs,
        params=params,
        levels=levels,
        requests=flags.requests,
        rounds=asked.rounds,
        engine=flags.settings(),
        neighbours=neighbours,
    )
    return plan, absent


def _ours(asked: BenchInputs, *, without: bool) -> "tuple[dict[str, Server], dict[str, str]]":
    """Plain decoding and our methods. `without`: if none is named, none."""
    from outdraft.bench.load.ours import OurServer

    for rival in asked.chosen:
        if rival.threads is not None:
            raise ConfigError(f"method {rival.label!r}: threads= is for texts one by one; leave it out under --load")
    usual = [] if without else [rival for rival in RIVALS if rival.name in _USUAL]
    return asked.gather(asked.chosen or usual, lambda llm, rival: OurServer(llm))

"""`outdraft bench --load 1,4,16`: many requests at once. What is measured is set by the flags of `outdraft bench`.

Data in: what a bench was asked (`cli.asked`) and `LoadFlags`; data out: a record file, a table, a picture, an exit
code.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outdraft.bench.lineup import RIVALS, Rival
from outdraft.cli.asked import Asked
from outdraft.cli.options import default_of, flag, flag_name
from outdraft.options.errors import ConfigError, OutdraftError

if TYPE_CHECKING:
    from rich.console import Console

    from outdraft.bench.load.clients import Server
    from outdraft.bench.load.run import LoadPlan

SEATS = 64  # requests that an engine decodes together unless set otherwise
_USUAL = ("draft_model", "ngram", "eagle")  # of the line-up, where no method is named
_DEFAULT = Rival(name="auto", is_recipe=True)  # what `LLM` drafts by itself


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFlags:
    """How many clients, and what they ask."""

    load: str | None = flag(
        None, "so many clients at once, each asks anew when its answer is whole: 1,4,16 measures three loads "
        "(docs/bench.md); answers have from half of --max-tokens to all of it, --seed also draws the prompts",
        metavar="N,N,...",
    )  # fmt: skip
    requests: int = flag(0, "with --load: requests of a round; 0 is two for each client, and at least 8")
    peer_field: Mapping[str, Any] = flag(
        {}, "with --load: a field of every request to a --peer beside ours (ignore_eos, cache_prompt=false, "
        "cache_salt, return_token_ids, return_tokens); null leaves one out"
    )  # fmt: skip

    max_num_seqs: int | None = flag(None, "with --load: the most requests that are decoded together; all by default")
    max_num_batched_tokens: int | None = flag(None, "with --load: the most prompt tokens that one pass reads")
    kv_cache_memory: str | None = flag(
        None, "with --load: the most memory for keys and values, e.g. 256MiB; a request that finds no room waits "
        "(docs/scheduling.md)", metavar="SIZE",
    )  # fmt: skip

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
        from outdraft.bench.load.over_http import is_url_peer

        words = [f"--{flag_name(one.name)}" for one in fields(self) if getattr(self, one.name) != default_of(one)]
        words += [f"--peer {one}" for one in peers if is_url_peer(one)]
        if words:
            raise ConfigError(f"{words[0]} is for many requests at once: add --load 1,4,16, or leave it out")


def parse_server(text: str) -> tuple[str, str]:
    """Label and URL of `--peer NAME=URL`."""
    from outdraft.bench.load.over_http import parse_server as parse

    return parse(text)


def measure_load(
    console: "Console", asked: Asked, flags: LoadFlags, servers: Seq[tuple[str, str]], path: Path, *, neighbours: int,
    plots: bool, as_json: bool,
) -> int:  # fmt: skip
    """Measure what is not in `path` yet, and show it."""
    from outdraft.bench.load.run import LoadBench
    from outdraft.bench.machine import busy_note
    from outdraft.bench.write import Journal
    from outdraft.cli.progress import progress_bar

    plan, absent = _plan(asked, flags, servers, neighbours)
    for label, why in absent.items():
        console.print(f"left out: {label} ({why})", style="dim", markup=False, soft_wrap=True)
    with Journal(path) as journal:
        if journal.num_found:
            console.print(f"{path} has {journal.num_found} lines; what is measured already is left out", style="dim")
        told = [f"at most {plan.num_answers} answers of {plan.params.max_tokens} tokens or fewer", busy_note()]
        for note in filter(None, told):
            console.print(note, style="dim", markup=False, soft_wrap=True)
        with progress_bar(console, plan.num_answers, "answers") as tell:
            outcome = LoadBench(plan, journal, tell).run()
    if outcome.num_skipped:
        console.print(f"{outcome.num_skipped} rows were there already, {outcome.num_rows} are new", style="dim")
    return report_load(console, path, plots=plots, as_json=as_json, like=outcome.key, more={"absent": absent})


def _plan(
    asked: Asked, flags: LoadFlags, servers: Seq[tuple[str, str]], neighbours: int
) -> "tuple[LoadPlan, dict[str, str]]":
    """Everything loaded and checked before the first request; and who is left out, and why."""
    from outdraft.bench.load.jobs import make_jobs
    from outdraft.bench.load.over_http import HttpServer
    from outdraft.bench.load.run import LoadPlan, num_requests

    plain, levels = asked.subject.plain, flags.levels()
    assert plain.codec is not None
    params = replace(asked.params, ignore_eos=True)  # with servers and without, so that their rows stand together
    jobs = make_jobs(
        plain.codec, asked.prompts, num_requests(levels[-1], flags.requests), params, seed=params.seed or 0,
        max_len=plain.config["max_model_len"],
    )  # fmt: skip
    taking_part, absent = _ours(asked, without=bool(servers))
    for label, url in servers:
        if label in taking_part:
            raise ConfigError(f"peer {label!r} has the name of another contestant: choose another one, NAME={url}")
        taking_part[label] = HttpServer(label, url, plain.config, flags.peer_field)
    plan = LoadPlan(
        subject=asked.subject, servers=taking_part, jobs=jobs, params=params, levels=levels,
        requests=flags.requests, rounds=asked.rounds, engine=flags.settings(), neighbours=neighbours,
    )  # fmt: skip
    return plan, absent


def _ours(asked: Asked, *, without: bool) -> "tuple[dict[str, Server], dict[str, str]]":
    """Plain decoding and our methods. `without`: if none is named, none."""
    from outdraft.bench.load.ours import OurServer
    from outdraft.bench.trial import PLAIN

    usual = [] if without else [*(rival for rival in RIVALS if rival.name in _USUAL), _DEFAULT]
    taking_part: dict[str, Server] = {PLAIN: OurServer(asked.subject.plain)}
    absent: dict[str, str] = {}
    for rival in asked.chosen or usual:
        if rival.label == PLAIN:
            continue  # it always takes part
        if rival.label in taking_part:
            raise ConfigError(f"method {rival.label!r} is given twice")
        if rival.threads is not None:
            raise ConfigError(f"method {rival.label!r}: threads= is for texts one by one; leave it out under --load")
        try:
            taking_part[rival.label] = OurServer(asked.join(rival))
        except OutdraftError as error:
            if asked.strict:
                raise
            absent[rival.label] = str(error)
    return taking_part, absent


def report_load(
    console: "Console", path: Path, *, plots: bool, as_json: bool, like: str | None = None,
    more: Mapping[str, Any] | None = None,
) -> int:  # fmt: skip
    """Table, picture and exit code of a record file: 1 if a text was not plain decoding's."""
    from outdraft.analysis.load import read_load, summarise_load
    from outdraft.analysis.load_sheet import load_sheet
    from outdraft.cli.console import write_json
    from outdraft.cli.sheets import show_sheet, write_sheets

    records = read_load(path, like)
    cells = summarise_load(records)
    sheet = load_sheet(records, cells)
    show_sheet(console, sheet)
    if records.num_others:
        others = f"{records.num_others} lines of the file are of another model, machine, sampling or requests"
        console.print(f"{others}, and left out", style="dim", markup=False)
    stem = path.with_name(f"{path.stem}-load")
    written = write_sheets(stem, [sheet])
    if plots:
        try:
            from outdraft.analysis.plots.load import draw_load
        except ImportError:
            console.print("no picture: it needs matplotlib, pip install 'outdraft[bench]'", markup=False)
        else:
            written.append(stem.with_suffix(".png"))
            draw_load(records, cells, written[-1])
    for one in [path, *written]:
        console.print(str(one), style="dim", markup=False, soft_wrap=True)
    failed = [f"{cell.method} with {cell.clients} clients" for cell in cells if cell.identical is False]
    if as_json:
        made = {"records": str(path), "written": [str(one) for one in written], "failed": failed}
        write_json(made | {"cells": [asdict(cell) for cell in cells]} | dict(more or {}))
    return 1 if failed else 0

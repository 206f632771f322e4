"""`outdraft replay`: a recorded trace through the engine's own scheduler in simulated time, as it was and otherwise."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from outdraft.cli.options import argument, flag
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import check_range

if TYPE_CHECKING:
    from outdraft.bench.replay.summary import Summary
    from outdraft.bench.replay.trace import Trace, TracedRequest

SUMMARY = "run a recorded trace of requests again, in simulated time, with other limits"
EPILOG = """record with: with outdraft.record_trace(llm, "monday.jsonl"): ...
examples:
  outdraft replay monday.jsonl                                  # as it was: does the replay agree with the recording?
  outdraft replay monday.jsonl --max-num-seqs 8 --max-num-seqs 32
  outdraft replay monday.jsonl --faster 2 --kv-cache-tokens 20000
see docs/replay.md"""
_COLUMNS = ["run", "tokens a second", "first token", "p99", "whole answer", "p99", "refused", "too late"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Which trace, and what is to be otherwise."""

    trace: str | None = argument(None, "a file that outdraft.record_trace wrote", metavar="TRACE")
    max_num_seqs: tuple[int, ...] = flag((), "requests that run together; may be repeated, a line each", metavar="N")
    max_num_batched_tokens: tuple[int, ...] = flag((), "prompt tokens of a pass; may be repeated", metavar="N")
    max_num_waiting: tuple[int, ...] = flag((), "requests that wait; one more is refused; may be repeated", metavar="N")
    kv_cache_tokens: tuple[int, ...] = flag(
        (), "positions that the key/value cache holds; may be repeated", metavar="N"
    )
    faster: tuple[float, ...] = flag((), "requests come so many times as fast; may be repeated", metavar="X")
    plain: bool = flag(False, "also without speculation: every round writes one token from one row")
    json: bool = flag(False, "machine output: runs [run, tokens_per_second, first_median, ...]")


def run(options: Options) -> int:
    """Run the trace through the scheduler under each setting, and print a line for each."""
    from outdraft.analysis.sheet import Sheet
    from outdraft.bench.replay.summary import summarise
    from outdraft.bench.replay.trace import read_trace
    from outdraft.cli.console import make_console, write_json
    from outdraft.cli.sheets import show_sheet

    if options.trace is None:
        raise ConfigError("it needs a trace, a file that outdraft.record_trace wrote: outdraft replay TRACE")
    check_range(options, "max_num_seqs", "max_num_batched_tokens", "kv_cache_tokens", least=1)
    check_range(options, "max_num_waiting", least=0)
    check_range(options, "faster", least=0.001, most=1000)
    trace = read_trace(options.trace)
    if not any(one.rounds for one in trace.requests):
        raise ConfigError(f"trace {options.trace} has no request that wrote a token: record a longer time")
    found = [("recorded", summarise(trace.requests))]
    found += _replays(options, trace)
    if options.json:
        write_json({"runs": [{"run": label, **asdict(one)} for label, one in found]})
        return 0
    show_sheet(
        make_console(),
        Sheet(
            title=f"{trace.setup['model']}, {trace.setup['drafter']}: {len(trace.requests)} requests, "
            f"{len(trace.passes)} passes\nseconds from a request's arrival; medians and 99th percentiles",
            columns=_COLUMNS,
            rows=[[label, *_cells(one)] for label, one in found],
            notes=(_note(found[0][1], found[1][1]),),
        ),
    )
    return 0


def _cells(one: "Summary") -> list[str]:
    times = (one.first_median, one.first_p99, one.end_median, one.end_p99)
    shown = ["-" if seconds is None else f"{seconds:.3f}" for seconds in times]
    return [f"{one.tokens_per_second:.1f}", *shown, str(one.num_refused), str(one.num_late)]


def _note(recorded: "Summary", again: "Summary") -> str:
    speed = again.tokens_per_second / max(recorded.tokens_per_second, 1e-9)
    first = (again.first_median or 0.0) / max(recorded.first_median or 0.0, 1e-9)
    told = f"tokens a second {speed:.2f}x, first token {first:.2f}x; trust the others about as far"
    return f"the replay as it was against the recording: {told}"


def _replays(options: Options, trace: "Trace") -> "Iterator[tuple[str, Summary]]":
    """As it was, and then with each change by itself."""
    from outdraft.bench.replay.simulate import learn, replay, scheduling_of

    machine, as_it_was = learn(trace), scheduling_of(trace)

    def again(requests: "list[TracedRequest]", num_pages: int | None = machine.num_pages, **changes: Any) -> "Summary":
        return replay(requests, replace(machine, num_pages=num_pages), replace(as_it_was, **changes))

    yield "replayed", again(trace.requests)
    for name in ("max_num_seqs", "max_num_batched_tokens", "max_num_waiting"):
        for count in getattr(options, name):
            yield f"{name}={count}", again(trace.requests, **{name: count})
    for count in options.kv_cache_tokens:
        yield f"{count} positions", again(trace.requests, num_pages=max(1, count // 16))
    for factor in options.faster:
        yield f"{factor:g}x as fast", again([one.sent(one.at / factor) for one in trace.requests])
    if options.plain:
        yield "plain decoding", again([replace(one, rounds=[(1, 1)] * one.num_tokens) for one in trace.requests])

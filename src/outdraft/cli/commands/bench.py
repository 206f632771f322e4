"""`outdraft bench`: measure methods against plain decoding, keep every figure, and end with a table and a picture.

Three ways: measure (and go on with a file that is there), `--load` (many requests at once), `--report` (only look at a
file).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from outdraft.bench.lineup import ZOO_TARGET, Rival, fill_roles, lineup_of, parse_rival
from outdraft.cli.bench_report import measure, report_file, report_rows
from outdraft.cli.flags import ROLES, EngineFlags, SamplingFlags
from outdraft.cli.load import BenchInputs, LoadFlags, measure_load
from outdraft.cli.options import flag, given_names, same
from outdraft.options.errors import ConfigError
from outdraft.options.paths import user_path
from outdraft.weights.user_cache import user_cache

if TYPE_CHECKING:
    from rich.console import Console

    from outdraft.bench.entrant import Entrant
    from outdraft.bench.runner import BenchPlan
    from outdraft.engine.llm import LLM

    Join = Callable[[BenchInputs, dict[str, Entrant]], dict[str, str]]

SUMMARY = "measure methods against plain decoding: records, tables, a picture"
EPILOG = """exit code 1 if a method wrote another text than plain decoding. Examples:
  outdraft bench --quick                                            # the zoo; it says how long it will take
  outdraft bench --model smollm2 --suite real --prompts 10          # a real model on real questions
  outdraft bench --method eagle:k=3 --method eagle:k=5,width=3 --suite prose --suite code
  outdraft bench --model DIR --method draft_model:model=DIR2,k=5 --suite spec-bench=question.jsonl
  outdraft bench --out runs/today.jsonl                             # again, to go on after an interruption
  outdraft bench --load 1,4,16 --max-tokens 32                      # many requests at once"""
_ONE_BY_ONE = ("by", "curve", "past")  # flags that say nothing of many requests at once
QUICK_PROMPTS, QUICK_ROUNDS, QUICK_TOKENS = 2, 3, 48
OVERHEAD_SECONDS = 3.0  # of warming up, tables and pictures; and as much for the cost curve


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to measure, on what, and what to make of it."""

    model: str = flag(
        ZOO_TARGET,
        "the target: a Hugging Face directory, a hub name, or zoo:NAME; "
        "MODEL@4x12 is inflated, MODEL@int8 rounded, for drafts too",
    )
    method: tuple[str, ...] = flag(
        (),
        "who drafts, and how: ngram, eagle:k=5,width=3, ngram:verifier=sequential, package.module:METHOD:k=4, "
        "recipe:NAME; may be repeated; without it the demo's line-up, as far as it fits the model",
        metavar="METHOD",
    )
    recipe: tuple[str, ...] = flag(
        (), "a paper's recipe, or a TOML file of yours: short for --method recipe:NAME; may be repeated", metavar="NAME"
    )
    draft_model: str | None = flag(None, "a smaller model, for the recipes that need one", metavar="DIR")
    head: str | None = flag(None, "a head that was trained for the model, for the recipes that need one", metavar="DIR")
    datastore: str | None = flag(
        None, "a file of `outdraft datastore build`, for the recipes that need one", metavar="FILE"
    )
    peer: tuple[str, ...] = flag(
        (),
        "with --load: NAME=URL, a running server of another engine in the same rounds; may be repeated",
        metavar="PEER",
    )
    suite: tuple[str, ...] = flag(
        (),
        "the prompts: copy, prose, code, docs, log; real, which is mt-bench, gsm8k and humaneval; or a file of "
        "Spec-Bench, MT-bench, SPEED-Bench, HumanEval, GSM8K or plain text; may be repeated; without it copy, prose, "
        "code and log",
        metavar="SUITE",
    )
    quick: bool = flag(False, "at most 2 prompts a suite, 48 tokens, 3 rounds: under a minute with the zoo's target")
    prompts: int = flag(0, "prompts of each suite, spread over it; 0 is all")
    rounds: int = flag(5, "timed texts of each method and prompt, after an untimed one that is compared")
    verifier: str | None = flag(
        None, "the acceptance rule of methods that name none; default: auto, or the recipe's", metavar="NAME"
    )
    sampling: SamplingFlags = field(metadata={"title": "sampling"})
    dtype: str = same(EngineFlags, "dtype")
    device: str = same(EngineFlags, "device")
    exact: bool | None = same(EngineFlags, "exact")
    guard: float | None = same(EngineFlags, "guard")
    enforce_eager: bool = same(EngineFlags, "enforce_eager")
    max_model_len: int | None = same(EngineFlags, "max_model_len")
    kv_cache: str | None = same(EngineFlags, "kv_cache")
    kv_cache_dtype: str = same(EngineFlags, "kv_cache_dtype")
    inflate: str | None = flag(
        None,
        "a bigger target of the same distribution, to see what one costs: 4x12 is width times 4, 12 layers",
        metavar="WIDTHxDEPTH",
    )
    cache: str | None = flag(None, "where inflated models are kept (default: ~/.cache/outdraft)", metavar="DIR")
    out: str | None = flag(
        None,
        "the record file (JSON lines); an existing one is continued; tables and a picture "
        "are written beside it (default: bench/DATE-TIME/bench.jsonl in outdraft's cache directory)",
        metavar="FILE",
    )
    by: str = flag("suite", "group the results by suite or by category", choices=("suite", "category"))
    curve: bool = flag(True, "also measure how long a target pass takes by its number of rows")
    past: int = flag(128, "cached tokens before the rows of that curve")
    load: LoadFlags = field(metadata={"title": "many requests at once"})
    neighbours: int = flag(0, "also run this many programs that keep a core busy each, as on a laptop in use")
    plots: bool = flag(True, "draw a picture, an SVG file beside the record")
    report: str | None = flag(None, "measure nothing: tables and picture of this record file", metavar="FILE")
    json: bool = flag(
        False,
        "machine output: records, written, cells [method, group, speedup, ...], failed; one by one also "
        "advice; what was measured now also has absent and, one by one, too_long",
    )


def run(options: Options, join: "Join | None" = None) -> int:
    """Measure; with --report only read what was measured before."""
    from outdraft.cli.console import make_console

    console = make_console(stderr=options.json)
    if options.report is not None:
        file = user_path(options.report)
        return report_file(console, file, by=options.by, plots=options.plots, as_json=options.json)
    _check(options)
    path = user_path(options.out or user_cache("bench", f"{datetime.now():%Y%m%d-%H%M%S}", "bench.jsonl"))
    return _measure(console, options, path, join) if options.load.load is None else _load(console, options, path)


def _load(console: "Console", options: Options, path: Path) -> int:
    """`--load`: requests of many clients at once, of ours and of other servers."""
    from outdraft.bench.load.over_http import parse_server

    servers = [parse_server(text) for text in options.peer]
    asked = _read(options, one_length=bool(servers), **options.load.settings())
    return measure_load(
        console, asked, options.load, servers, path, neighbours=options.neighbours, as_json=options.json
    )


def _check(options: Options) -> None:
    for name in ("rounds", "prompts", "past", "neighbours"):
        least = 0 if name in ("prompts", "neighbours") else 1
        if getattr(options, name) < least:
            raise ConfigError(f"{name}={getattr(options, name)}: must be at least {least}")
    if options.load.load is None:
        options.load.check_unused(options.peer)
        return
    for name in given_names(options):
        if name in _ONE_BY_ONE:
            said = f"no-{name}" if getattr(options, name) is False else name
            raise ConfigError(f"--{said} is for texts that are measured one by one: leave it out, or leave --load out")


def _measure(console: "Console", options: Options, path: Path, join: "Join | None") -> int:
    from outdraft.bench.runner import Bench
    from outdraft.cli.console import say

    plan, absent = make_plan(options, join)
    outcome = measure(console, path, absent, _forecast(plan), plan.num_texts, "texts", partial(Bench, plan))
    if outcome.too_long and outcome.key is None:
        raise ConfigError(
            f"no prompt fits: {outcome.too_long[0]} and --max-tokens {plan.params.max_tokens} exceed the context "
            f"of {plan.subject.plain.config['max_model_len']} tokens; lower --max-tokens, or take another --suite"
        )
    if outcome.num_skipped:
        say(console, f"{outcome.num_skipped} rows were there already, {outcome.num_rows} are new", style="dim")
    if outcome.too_long:
        note = f"{len(outcome.too_long)} prompts do not fit into the context, first: {outcome.too_long[0]}"
        say(console, note, style="dim")
    more = {"absent": absent, "too_long": outcome.too_long}
    return report_rows(
        console, path, by=options.by, plots=options.plots, as_json=options.json, like=outcome.key, **more
    )


def _forecast(plan: "BenchPlan") -> list[str]:
    """About how long it takes, if every method is as quick as plain decoding; and whether the machine is busy."""
    from outdraft.bench.forecast import how_long, text_pace
    from outdraft.bench.machine import busy_note

    tokens = plan.params.max_tokens or QUICK_TOKENS
    codec = plan.subject.plain.tokenizer
    lengths = [len(codec.encode(turn)) for prompt in plan.prompts for turn in prompt.turns] if codec else []
    pace = text_pace(plan.subject.plain, tokens, round(fmean(lengths)) if lengths else 1)
    beside = OVERHEAD_SECONDS * (1 + plan.curve)
    took = how_long(pace.seconds * plan.num_texts + beside, pace.quiet * plan.num_texts + beside)
    return [f"at most {plan.num_texts} texts of {tokens} tokens: {took}", busy_note()]


def make_plan(options: Options, join: "Join | None" = None) -> "tuple[BenchPlan, dict[str, str]]":
    """Everything loaded and checked, before the first text; and who is left out, and why.

    `join` adds other programs to the entrants and returns those that it had to leave out: texts then have one length.
    """
    from outdraft.bench.entrant import Ours
    from outdraft.bench.runner import BenchPlan

    asked = _read(options, one_length=join is not None)
    rivals = lineup_of(options.model) if join is None and not asked.chosen else []
    lineup = asked.chosen or [replace(rival, verifier=options.verifier) for rival in rivals]

    def ours(llm: "LLM", rival: Rival | None) -> "Entrant":
        return Ours(llm, rival.threads if rival is not None else None)

    entrants, absent = asked.gather(lineup, ours)
    absent |= {} if join is None else join(asked, entrants)
    plan = BenchPlan(
        subject=asked.subject,
        entrants=entrants,
        prompts=asked.prompts,
        params=asked.params,
        rounds=asked.rounds,
        curve=options.curve,
        past=options.past,
        neighbours=options.neighbours,
    )
    return plan, absent


def _read(options: Options, *, one_length: bool, **settings: Any) -> BenchInputs:
    """Everything but who else takes part: loaded, checked. `one_length`: of greedy texts; `settings`: `LLM`'s."""
    from outdraft.bench.entrant import check_greedy
    from outdraft.bench.shelf import Shelf
    from outdraft.bench.subject import load_subject
    from outdraft.bench.suites import DEFAULT, load_suites

    params = options.sampling.params()
    count, rounds = options.prompts, options.rounds
    if options.quick:
        count, rounds = count or QUICK_PROMPTS, min(rounds, QUICK_ROUNDS)
        params = replace(params, max_tokens=min(params.max_tokens or QUICK_TOKENS, QUICK_TOKENS))
    if one_length:
        check_greedy(params)
        params = replace(params, ignore_eos=True)
    methods = (*options.method, *(f"recipe:{name}" for name in options.recipe))
    roles = {role: value for role in ROLES if (value := getattr(options, role)) is not None}
    chosen = fill_roles([parse_rival(text, verifier=options.verifier) for text in methods], roles)
    prompts = load_suites(options.suite or DEFAULT, count=count)
    engine = ("dtype", "device", "exact", "guard", "enforce_eager", "max_model_len", "kv_cache", "kv_cache_dtype")
    settings = {name: getattr(options, name) for name in engine} | settings
    shelf = Shelf(options.cache)
    subject = load_subject(options.model, shelf, inflated=options.inflate, **settings)
    if subject.plain.tokenizer is None:
        raise ConfigError(f"{options.model} has no tokenizer, and suites are text: add its tokenizer.json")
    return BenchInputs(
        subject=subject,
        shelf=shelf,
        prompts=prompts,
        params=params,
        rounds=rounds,
        chosen=chosen,
        strict=bool(chosen) or options.model.partition("@")[0] == ZOO_TARGET,
    )

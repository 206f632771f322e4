"""`outdraft demo`: texts written plainly and speculatively side by side, then a table of drafters, then one sentence.

A model that answers is asked three questions, greedily, one of them live, plain beside the default. Any other, as the
zoo's, goes on writing prose, Python and a prompt that repeats itself. The table is measured in turn in one run; with
--all, every head trained for this model takes part. Exit code 1 if any drafter's text is not the plain one.
"""

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from outdraft.bench.lineup import DEFAULT, RIVALS, ZOO_TARGET, family, lineup_of
from outdraft.cli.flags import EngineFlags
from outdraft.cli.options import flag, same
from outdraft.options.errors import ConfigError, OutdraftError
from outdraft.options.params import SamplingParams

if TYPE_CHECKING:
    from rich.console import Console

    from outdraft.bench.contest import Contest, Score
    from outdraft.codecs.text import TextCodec
    from outdraft.engine.llm import LLM

SUMMARY = "show one text decoded plainly and speculatively, then compare the default and a few drafters"
EPILOG = "exit code 1 if a drafter's text differs from plain decoding's"
GAIN = 1.05  # what counts as one
BARS = " ▁▂▃▄▅▆▇█"
WIDTH = 20  # of the longest bar
QUESTIONS = {
    "chat": "How does a lighthouse work, and why are there fewer of them now?",
    "maths": "A baker sells 48 rolls in the morning and half as many in the afternoon. A roll costs 3 dollars. "
    "How much money does the baker take in that day?",
    "code": "Write a Python class Stack with push, pop and size, and show how to use it.",
}
LIVE: dict[str, Any] = {"temperature": 0.7, "top_p": 0.95, "seed": 1}  # the zoo's greedy text soon repeats


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The model, and how much is written and measured of it."""

    model: str | None = flag(None, "the target (default: smollm2 where it is installed, else the zoo's)")
    dtype: str = same(EngineFlags, "dtype")
    device: str = same(EngineFlags, "device")
    max_tokens: int = flag(64, "tokens of each text")
    seconds: float = flag(12.0, "about how long to measure (at least three rounds)")
    all: bool = flag(False, "every head that was trained for this model takes part, the fastest first")
    live: bool = flag(True, "show the texts being written before the table")
    json: bool = flag(False, "machine output: plain_tps, drafters [name, identical, tau, speedup, ...]")


def run(options: Options) -> int:
    """Race plain against speculative decoding, then measure several drafters, and print both."""
    if options.max_tokens < 8:
        raise ConfigError(f"max_tokens={options.max_tokens}: a demo needs at least 8")
    if not options.seconds >= 0:
        raise ConfigError(f"seconds={options.seconds:g}: it must be at least 0")
    from outdraft.bench.contest import hold
    from outdraft.cli.console import make_console, say, write_json
    from outdraft.engine.llm import LLM
    from outdraft.testing.prompts import CODE, COPIES, PROSE
    from outdraft.weights.hub import resolve
    from outdraft.weights.known import usual_model

    console = make_console(stderr=options.json)
    model = options.model or usual_model(ZOO_TARGET)[0]
    options = replace(options, model=model)
    plain = LLM(model, drafter="none", dtype=options.dtype, device=options.device)
    if plain.tokenizer is None:
        raise ConfigError(f"{options.model} has no tokenizer, and a demo shows text")
    answers = plain.tokenizer.chat_template is not None
    kinds = QUESTIONS if answers else {"prose": PROSE[1], "python": CODE[1], "copy": COPIES[0]}
    ids = {kind: ids_of(plain.tokenizer, text, chat=answers) for kind, text in kinds.items()}
    rivals = family(resolve(model)) if options.all else lineup_of(model)
    notes = forecast(plain, len(rivals), len(kinds), options)
    for note in notes:
        say(console, note, style="dim")
    if options.live and not options.json:
        show_races(console, plain, kinds, ids, options)
    with console.status("measuring") as status:
        contest = hold(
            plain,
            rivals,
            ids,
            max_tokens=options.max_tokens,
            seconds=options.seconds,
            strict=model == ZOO_TARGET,
            progress=status.update,
        )
    if options.json:
        scores = [asdict(score) for score in contest.scores]
        config = plain.config | {"num_rounds": contest.num_rounds, "max_tokens": options.max_tokens}
        write_json({"plain_tps": contest.plain_tps, "drafters": scores, "absent": contest.absent, "config": config})
    else:
        show_table(console, contest, options)
    return 0 if all(score.identical for score in contest.scores) else 1


def forecast(plain: "LLM", num_rivals: int, num_kinds: int, options: Options) -> list[str]:
    """How long it will take, by the pace of one text; and a note where other programs use our cores."""
    from outdraft.bench.contest import MIN_ROUNDS
    from outdraft.bench.forecast import how_long, text_pace
    from outdraft.bench.machine import busy_note

    pace = text_pace(plain, options.max_tokens)
    texts = (num_rivals + 2) * num_kinds + (2 * num_kinds if options.live and not options.json else 0)
    rounds = MIN_ROUNDS * num_kinds * (num_rivals + 1)
    now, quiet = (one * texts + max(options.seconds, one * rounds) for one in (pace.seconds, pace.quiet))
    notes = [f"this takes {how_long(now, quiet)}"]
    return notes + ([note] if (note := busy_note()) else [])


def ids_of(codec: "TextCodec", text: str, *, chat: bool) -> list[int]:
    """A text, or a question by the model's chat template."""
    from outdraft.bench.suites.prompt import Prompt, ask

    prompt = Prompt(suite="demo", name="1", category="demo", turns=(text,), chat=chat)
    return list(ask(codec, prompt, [{"role": "user", "content": text}]).ids)


def show_races(
    console: "Console", plain: "LLM", kinds: dict[str, str], ids: dict[str, list[int]], options: Options
) -> None:
    """Texts written live, plain beside speculative: by the default where the model answers, else by three drafters.

    The default has answered the other questions before, and so knows what its drafters bring.
    """
    from outdraft.bench.lineup import Rival
    from outdraft.bench.trial import join
    from outdraft.cli.console import has_style, legend, say
    from outdraft.cli.race import race

    named = {rival.name: rival for rival in RIVALS}
    say(console, f"{options.model}, {plain.config['dtype']} on {plain.config['device']}", style="bold")
    console.print(legend() if has_style(console) else "[accepted drafts stand in brackets]", markup=False)
    console.print()
    answers = "chat" in kinds
    shown = {"code": DEFAULT} if answers else {"prose": "draft_model", "python": "eagle", "copy": "ngram"}
    for kind, drafter in shown.items():
        try:
            speculative = join(plain, named[drafter])
        except OutdraftError:
            if options.model == ZOO_TARGET:
                raise
            drafter, speculative = "ngram", join(plain, Rival(name="ngram"))
        for other in (ids[one] for one in ids if answers and one != kind):
            speculative.generate({"prompt_token_ids": other}, SamplingParams(max_tokens=options.max_tokens))
        engines = {f"{kind}, plain": plain, f"{kind}, {drafter}": speculative}
        live = {"max_tokens": 2 * options.max_tokens} if answers else {"max_tokens": options.max_tokens, **LIVE}
        params = SamplingParams(**live)
        text = f"{kinds[kind]}\n\n" if answers else kinds[kind]
        race(console, text, engines, params, asked={"prompt_token_ids": ids[kind]})


def show_table(console: "Console", contest: "Contest", options: Options) -> None:
    """One row for each drafter."""
    from rich.table import Table

    from outdraft.cli.console import say

    kinds, shown = list(contest.scores[0].by_kind), [] if options.all else list(contest.scores[0].by_kind)
    title = (
        f"{options.max_tokens} tokens after each of {len(kinds)} prompts, greedy; median of {contest.num_rounds} rounds"
    )
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("drafter", no_wrap=True)
    table.add_column("tokens\nper pass", justify="right", no_wrap=True)
    table.add_column("speed-up", justify="right", no_wrap=True)
    for kind in shown:
        table.add_column(f"on\n{kind}", justify="right", style="dim", no_wrap=True)
    table.add_column("accepted\nby position", no_wrap=True)
    table.add_column("identical", no_wrap=True)
    if options.all:
        table.add_column("speed (plain: |)", no_wrap=True)
    fastest = max(score.speedup for score in contest.scores)
    for score in sorted(contest.scores, key=lambda one: -one.speedup) if options.all else contest.scores:
        table.add_row(
            score.name,
            f"{score.tau:.2f}",
            f"{score.speedup:.2f}x",
            *(f"{score.by_kind[kind]['speedup']:.2f}x" for kind in shown),
            _bars(score, console),
            "[green]yes[/]" if score.identical else "[bold red]NO[/]",
            *([_length(score.speedup, fastest, console)] if options.all else []),
        )
    console.print(table)
    console.print()
    notes = [f"plain decoding: {contest.plain_tps:.0f} tokens/s"]
    notes += ["ngram copies from prompt and output: it gains where the text repeats itself"]
    notes += [f"left out: {name} ({why})" for name, why in contest.absent.items()]
    for note in notes:
        say(console, note, style="dim")
    say(console, sentence(contest, options), style="bold")


def sentence(contest: "Contest", options: Options) -> str:
    """What the default gains here; where it gains nothing, why."""
    gain = next(score.speedup for score in contest.scores if score.name == DEFAULT)
    if gain >= GAIN:
        return f"this machine, {options.model}: the default is {gain:.1f}x plain decoding, with the same texts"
    return (
        f"this machine, {options.model}: the default is {gain:.2f}x plain decoding. A pass of so small a model over "
        "several tokens takes much longer than over one, so that guesses cost what they save; larger models gain "
        "(docs/performance.md)"
    )


def _bars(score: "Score", console: "Console") -> str:
    """One character for each draft position: its acceptance, given that it was reached."""
    rates = score.acceptance_by_position[:16]
    if console.encoding.startswith("utf"):
        return "".join(BARS[round(rate * (len(BARS) - 1))] for rate in rates)
    return " ".join(f"{rate:.1f}" for rate in rates)


def _length(speedup: float, fastest: float, console: "Console") -> str:
    """A bar as long as the drafter is fast; where plain decoding's would end there is a stroke."""
    full, blank = ("█", "·") if console.encoding.startswith("utf") else ("#", ".")
    scale = WIDTH / max(fastest, 1.0)
    ends, plain = max(1, round(speedup * scale)), max(1, round(scale))
    cells = [full if i < ends else blank if i < plain else "" for i in range(max(ends, plain))]
    cells.insert(plain, "|")
    colour = "green" if speedup > 1 else "red"
    return f"[{colour}]{''.join(cells)}[/]"

"""`outdraft adapt`: what a draft would learn from served requests, in simulated time, and what the gate says of it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import mean
from typing import TYPE_CHECKING, Any

from outdraft.cli.options import argument, flag
from outdraft.options.errors import ConfigError

if TYPE_CHECKING:
    from outdraft.training.live_replay import Point

SUMMARY = "let a draft learn from recorded requests, in simulated time, before anything is served by it"
EPILOG = """A request is a line {"prompt_token_ids": [...], "token_ids": [...], "domain": "code"}, the last if wanted,
in the order of service: what `outdraft train answers` writes. Nothing but ids is read. Examples:
  outdraft train answers --target smollm2 --data prompts.jsonl --out served.jsonl
  outdraft adapt served.jsonl --target smollm2
  outdraft adapt served.jsonl --target MODEL --draft DIR --learn lr=0.001 --gate alpha=0.01 --out DIR2
see docs/adaptation.md"""
WINDOW = 50  # requests of a row of the table


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Which requests, which pair, and how it learns."""

    trace: str | None = argument(None, "requests that the target answered, one a line", metavar="FILE")
    target: str | None = flag(None, "the model that answered them: a directory, a hub name, or smollm2")
    draft: str | None = flag(None, "a trained draft; default: the head that lies beside the target", metavar="DIR")
    learn: Mapping[str, Any] = flag({}, "a setting of learning, e.g. lr=0.001, replay=0.5, step_tokens=2048")
    gate: Mapping[str, Any] = flag({}, "a setting of the gate, e.g. alpha=0.01, margin=0.05")
    first: int = flag(4096, "tokens learned before a draft is tried", metavar="N")
    dtype: str = flag("auto", "the target's number format while it learns")
    out: str | None = flag(None, "where the last draft that passed goes; without one it is only judged", metavar="DIR")
    seed: int = flag(0, "of which earlier requests are learned from again")
    json: bool = flag(False, "machine output: requests, verdicts, tokens_a_second")


def run(options: Options) -> int:
    """Replay the requests, and print how much each draft would have had accepted."""
    from outdraft.adapt.gate import GateOptions
    from outdraft.cli.console import make_console, write_json
    from outdraft.core.registry import read_options
    from outdraft.options.paths import user_path
    from outdraft.training.live import Learning, LiveDraft, read_served
    from outdraft.training.live_replay import LiveReplay
    from outdraft.training.possible import require_room
    from outdraft.weights.hub import resolve

    if options.trace is None or options.target is None:
        raise ConfigError("it needs requests and who answered them: outdraft adapt FILE --target MODEL")
    learning = read_options(Learning, options.learn, "--learn")
    gate = read_options(GateOptions, options.gate, "--gate")
    target = resolve(options.target)
    draft, out = _draft(options, target), None if options.out is None else user_path(options.out)
    if out is not None:
        require_room(out, [target.resolve(), draft.resolve()])
    requests = read_served(user_path(options.trace))
    console = make_console(stderr=True)
    live = LiveDraft(target, draft, learning, dtype=options.dtype, seed=options.seed)
    console.print(f"{live.kind}; {live.line}; {len(requests)} requests", markup=False, highlight=False)
    for one in live.findings():
        if one.evidence.is_alarm:
            console.print(one.sentence, markup=False, highlight=False, soft_wrap=True)
    replay, points = LiveReplay(live=live, gate=gate, first=options.first), list["Point"]()
    for point in replay.run(requests):
        points.append(point)
        if not options.json and (len(points) % WINDOW == 0 or len(points) == len(requests)):
            some = points[-(len(points) % WINDOW or WINDOW) :]
            line = (
                f"{len(points):6d} requests: the first draft {mean(one.first for one in some):.3f} accepted a round, "
                f"{mean(one.serving for one in some):.3f} by version {some[-1].version}"
            )
            console.print(line, markup=False, highlight=False)
    pace = live.num_tokens / max(replay.seconds, 1e-9)
    if out is not None and replay.version:
        live.go_back()
        live.serve(out)
    if options.json:
        told = [asdict(one) for one in points]
        write_json({"requests": told, "verdicts": replay.verdicts, "tokens_a_second": round(pace, 1)})
        return 0
    for said in replay.verdicts:
        console.print(said, style="dim", markup=False, highlight=False, soft_wrap=True)
    console.print(
        f"{live.num_steps} steps at {pace:.0f} tokens a second; version {replay.version} serves", markup=False
    )
    return 0


def _draft(options: Options, target: Any) -> Any:
    """What was named, or the head beside the target."""
    from outdraft.engine.naming.roles import read_companions
    from outdraft.options.paths import user_path

    if options.draft is not None:
        return user_path(options.draft)
    heads = read_companions(target).get("head", {})
    if not heads:
        raise ConfigError(f"no head lies beside {options.target}: name a draft with --draft DIR")
    return user_path(next(iter(heads.values())))

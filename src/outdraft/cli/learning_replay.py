"""`outdraft adapt replay`: what a draft would learn from recorded requests, in simulated time, and what the gate says.

Data in: requests as ids, a target and its draft; data out: a curve, the verdicts, perhaps the last draft that passed.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from statistics import mean
from typing import TYPE_CHECKING, Any

from outdraft.cli.options import argument, flag
from outdraft.options.errors import ConfigError
from outdraft.options.paths import user_path

if TYPE_CHECKING:
    from outdraft.training.live_replay import Point

WINDOW = 50  # requests of a row of the table


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
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


def replay(options: ReplayOptions) -> int:
    """Replay the requests, and print how much each draft would have had accepted."""
    from outdraft.adapt.diagnose import diagnose
    from outdraft.adapt.gate import GateOptions
    from outdraft.adapt.kinds import Cure
    from outdraft.adapt.learning import Learning
    from outdraft.adapt.observe import Observed
    from outdraft.cli.console import make_console, say, write_json
    from outdraft.core.registry import read_options
    from outdraft.training.computing import open_target
    from outdraft.training.live import LiveDraft
    from outdraft.training.live_replay import LiveReplay
    from outdraft.training.possible import require_own_target, require_room
    from outdraft.training.served import read_served
    from outdraft.weights.hub import resolve

    if options.trace is None or options.target is None:
        raise ConfigError("it needs requests and who answered them: outdraft adapt replay FILE --target MODEL")
    learning = read_options(Learning, options.learn, "--learn")
    gate = read_options(GateOptions, options.gate, "--gate")
    target = resolve(options.target)
    draft, out = _draft(options, target), None if options.out is None else user_path(options.out)
    if out is not None:
        require_room(out, [target.resolve(), draft.resolve()])
    live = LiveDraft(open_target(target, options.dtype, "cpu"), draft, learning, seed=options.seed)
    require_own_target(draft, live.teacher.target, target)
    console = make_console(stderr=True)
    told = partial(console.print, style="dim", markup=False, soft_wrap=True)
    requests = read_served(user_path(options.trace), live.teacher.target.config.vocab_size, told)
    say(console, f"{live.kind}; {live.line}; {len(requests)} requests")
    found = diagnose(Observed(), findings=live.findings())
    if found.cure is not Cure.NOTHING:
        say(console, found.sentence)
        if learning.weigh == "auto":
            live.treat(found.cure)
    run, points = LiveReplay(live=live, gate=gate, first=options.first), list["Point"]()
    for point in run.run(requests):
        points.append(point)
        if not options.json and (len(points) % WINDOW == 0 or len(points) == len(requests)):
            some = points[-(len(points) % WINDOW or WINDOW) :]
            line = (
                f"{len(points):6d} requests: the first draft {mean(one.first for one in some):.3f} accepted a round, "
                f"{mean(one.serving for one in some):.3f} by version {some[-1].version}"
            )
            say(console, line)
    pace = live.num_tokens / max(run.candidates.seconds, 1e-9)
    if out is not None and run.version:
        live.write(live.serving, out)
    if options.json:
        outcome = {"verdicts": run.turns, "tokens_a_second": round(pace, 1)}
        write_json({"requests": [asdict(one) for one in points], **outcome})
        return 0
    for said in run.turns:
        told(said)
    say(console, f"{live.num_steps} steps at {pace:.0f} tokens a second; version {run.version} serves")
    return 0


def _draft(options: ReplayOptions, target: Any) -> Any:
    """What was named, or the head beside the target."""
    from outdraft.engine.naming.roles import read_companions
    from outdraft.weights.hub import resolve

    if options.draft is not None:
        return resolve(options.draft)
    if not (heads := read_companions(target).get("head")):
        raise ConfigError(f"no head lies beside {options.target}: name a draft with --draft DIR")
    return user_path(next(iter(heads.values())))

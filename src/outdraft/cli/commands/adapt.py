"""`outdraft adapt`: what a draft has learned while it served, and what it would learn from recorded requests."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from statistics import mean
from typing import TYPE_CHECKING, Any

from outdraft.cli.command import Command
from outdraft.cli.options import argument, flag
from outdraft.options.errors import ConfigError

if TYPE_CHECKING:
    from outdraft.adapt.room import AdaptRoom
    from outdraft.training.live_replay import Point

SUMMARY = "see what a draft learns while it serves, hold it, undo it; or try it on recorded requests"
EPILOG = """ROOM is the directory that LLM(..., adapt=True) and `outdraft serve --adapt` write to; without one, the only
one in the cache. A request of `replay` is a line {"prompt_token_ids": [...], "token_ids": [...], "domain": "code"}, the
last if wanted, in the order of service: what `outdraft train answers` writes. Nothing but ids is read. Examples:
  outdraft train answers --target smollm2 --data prompts.jsonl --out served.jsonl
  outdraft adapt status
  outdraft adapt freeze ROOM
  outdraft adapt export ROOM --out DIR
  outdraft adapt replay served.jsonl --target smollm2
  outdraft adapt replay served.jsonl --target MODEL --draft DIR --learn lr=0.001 --gate alpha=0.01 --out DIR2
see docs/adaptation.md"""
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
    from outdraft.adapt.gate import GateOptions
    from outdraft.adapt.learning import Learning
    from outdraft.cli.console import make_console, write_json
    from outdraft.core.registry import read_options
    from outdraft.options.paths import user_path
    from outdraft.training.computing import open_target
    from outdraft.training.live import LiveDraft, read_served
    from outdraft.training.live_replay import LiveReplay
    from outdraft.training.possible import require_own_target, require_room
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
    told = partial(console.print, style="dim", markup=False, highlight=False, soft_wrap=True)
    requests = read_served(user_path(options.trace), live.teacher.target.config.vocab_size, told)
    console.print(f"{live.kind}; {live.line}; {len(requests)} requests", markup=False, highlight=False)
    for finding in live.findings():
        if finding.evidence.is_alarm:
            console.print(finding.sentence, markup=False, highlight=False, soft_wrap=True)
    run, points = LiveReplay(live=live, gate=gate, first=options.first), list["Point"]()
    for point in run.run(requests):
        points.append(point)
        if not options.json and (len(points) % WINDOW == 0 or len(points) == len(requests)):
            some = points[-(len(points) % WINDOW or WINDOW) :]
            line = (
                f"{len(points):6d} requests: the first draft {mean(one.first for one in some):.3f} accepted a round, "
                f"{mean(one.serving for one in some):.3f} by version {some[-1].version}"
            )
            console.print(line, markup=False, highlight=False)
    pace = live.num_tokens / max(run.candidates.seconds, 1e-9)
    if out is not None and run.version:
        live.write(live.serving, out)
    if options.json:
        write_json(
            {"requests": [asdict(one) for one in points], "verdicts": run.turns, "tokens_a_second": round(pace, 1)}
        )
        return 0
    for said in run.turns:
        told(said)
    console.print(f"{live.num_steps} steps at {pace:.0f} tokens a second; version {run.version} serves", markup=False)
    return 0


def _draft(options: ReplayOptions, target: Any) -> Any:
    """What was named, or the head beside the target."""
    from outdraft.engine.naming.roles import read_companions
    from outdraft.options.paths import user_path

    if options.draft is not None:
        return user_path(options.draft)
    heads = read_companions(target).get("head", {})
    if not heads:
        raise ConfigError(f"no head lies beside {options.target}: name a draft with --draft DIR")
    return user_path(next(iter(heads.values())))


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomOptions:
    """Which room."""

    room: str | None = argument(None, "the directory of a draft that learns; default: the only one in the cache")
    json: bool = flag(False, "machine output")


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeOptions:
    """Which room, and whether to let it go on."""

    room: str | None = argument(None, "the directory of a draft that learns; default: the only one in the cache")
    off: bool = flag(False, "go on where it was frozen")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOptions:
    """Which room, and what of it."""

    room: str | None = argument(None, "the directory of a draft that learns; default: the only one in the cache")
    tenant: str | None = flag(None, "only this tenant's, by the name of its folder", metavar="FOLDER")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """Which draft, and where to."""

    room: str | None = argument(None, "the directory of a draft that learns; default: the only one in the cache")
    out: str | None = flag(None, "where the draft goes, as `outdraft train` writes one", metavar="DIR")
    tenant: str = flag("shared", "whose draft, by the name of the folder", metavar="FOLDER")
    version: int | None = flag(None, "which version; default: the one that serves")


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnOptions:
    """Which room."""

    room: str | None = argument(None, "the directory of a draft that learns; default: the only one in the cache")
    parent: int | None = flag(None, "the process that it ends with", metavar="PID")


def status(options: RoomOptions) -> int:
    """Show versions, requests and what the gate said."""
    from outdraft.adapt.room import SHARED
    from outdraft.adapt.spool import read_spool
    from outdraft.cli.console import make_console, write_json

    room = _room(options.room)
    found = dict[str, dict[str, Any]]()
    for name in room.tenants():
        tenant = room.tenant(name)
        kept = sum(1 for _ in read_spool(tenant.requests))
        found[name] = {
            "version": tenant.version,
            "versions": tenant.versions(),
            "requests": kept,
            "ledger": tenant.ledger(),
        }
    observed = _observed(room)
    if options.json:
        write_json({"room": str(room.path), "frozen": room.is_frozen, "tenants": found, "observed": observed})
        return 0
    console = make_console()
    lines = [
        f"{room.path}{', frozen' if room.is_frozen else ''}",
        f"draft {room.pair.draft}, target {room.pair.target}",
    ]
    for name, one in sorted(found.items(), key=lambda pair: pair[0] != SHARED):
        lines.append(f"{name}: version {one['version']} serves, {one['requests']} requests are kept")
        lines += [f"  {told['what']} {told.get('number', '')}: {told.get('reason', '')}" for told in one["ledger"][-8:]]
    if observed:
        rates = " ".join(f"{one:.2f}" for one in observed["acceptance"])
        lines += [f"guesses accepted by position: {rates} ({observed['rounds']:.0f} rounds)", observed["diagnosis"]]
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return 0


def freeze(options: FreezeOptions) -> int:
    """Hold everything as it is, or go on."""
    room = _room(options.room)
    place = room.path / "frozen"
    place.unlink(missing_ok=True) if options.off else place.touch()
    _say(f"{room.path}: {'learns again' if options.off else 'keeps its versions, and learns nothing'}")
    return 0


def reset(options: ResetOptions) -> int:
    """Delete requests, versions and history: the draft of the beginning serves."""
    room = _room(options.room)
    if options.tenant is not None and options.tenant not in room.tenants():
        raise ConfigError(
            f"tenant={options.tenant!r} has no folder in {room.path}: there are {', '.join(room.tenants())}"
        )
    for name in room.tenants() if options.tenant is None else [options.tenant]:
        room.tenant(name).reset()
    if options.tenant is None:
        for name in ("observed.json", "learner.log"):
            (room.path / name).unlink(missing_ok=True)
    _say(f"{room.path}: nothing is left of what was learned; the draft of the beginning serves")
    return 0


def export(options: ExportOptions) -> int:
    """Copy a version to a directory of its own."""
    import shutil

    from outdraft.options.paths import user_path
    from outdraft.training.possible import require_room

    room = _room(options.room)
    if options.out is None:
        raise ConfigError("it needs a place: outdraft adapt export ROOM --out DIR")
    tenant, out = room.tenant(options.tenant), user_path(options.out)
    version = tenant.version if options.version is None else options.version
    place = tenant.place(version) if version else room.pair.draft
    if not place.is_dir():
        raise ConfigError(f"version {version} is not in {tenant.path}: there are {[0, *tenant.versions()]}")
    require_room(out, [room.pair.target, room.pair.draft])
    shutil.copytree(place, out, dirs_exist_ok=True)
    _say(f"version {version} is in {out}: --head {out} or --draft-model {out} drafts with it")
    return 0


def learn(options: LearnOptions) -> int:
    """Learn in a room until the engine that it is for ends, or Ctrl-C does."""
    import os
    from contextlib import ExitStack

    from outdraft.adapt.lock import one_at_a_time
    from outdraft.engine.adapting.learner_process import TAKEN
    from outdraft.options.errors import CapabilityError
    from outdraft.training.live_learner import LiveLearner, lower_priority

    room = _room(options.room)
    lower_priority(ends_with_parent=options.parent is not None)
    taken = f"{room.path} has a learner already: one is enough for all replicas"
    with ExitStack() as stack:
        try:
            stack.enter_context(one_at_a_time(room.path / "learner.lock", taken))
        except CapabilityError:
            if options.parent is None:
                raise
            return TAKEN
        LiveLearner(room).run(lambda: options.parent is None or os.getppid() == options.parent)
    return 0


def _room(named: str | None) -> "AdaptRoom":
    from outdraft.adapt.room import AdaptRoom
    from outdraft.options.paths import user_path
    from outdraft.weights.user_cache import user_cache

    if named is not None:
        return AdaptRoom(user_path(named))
    home = user_cache("adapt")
    found = sorted(home.glob("*/room.json"))
    if len(found) != 1:
        listed = "".join(f"\n  {one.parent}" for one in found)
        raise ConfigError(f"{home} holds {len(found)} rooms of drafts that learn: name one{listed}")
    return AdaptRoom(found[0].parent)


def _observed(room: "AdaptRoom") -> dict[str, Any]:
    from outdraft.options.read_file import load_json

    try:
        return dict(load_json(room.path / "observed.json"))
    except (OSError, ValueError):
        return {}


def _say(line: str) -> None:
    from outdraft.cli.console import make_console

    make_console().print(line, markup=False, highlight=False, soft_wrap=True)


ACTIONS = (
    Command(name="status", summary="show versions, requests, and what the gate said", options=RoomOptions, run=status),
    Command(
        name="freeze", summary="keep the version that serves, and learn nothing", options=FreezeOptions, run=freeze
    ),
    Command(name="reset", summary="delete all that was kept and learned", options=ResetOptions, run=reset),
    Command(name="export", summary="copy a version, as a draft of its own", options=ExportOptions, run=export),
    Command(
        name="learn", summary="learn in a room, as the process beside an engine does", options=LearnOptions, run=learn
    ),
    Command(
        name="replay",
        summary="try on recorded requests, in simulated time, what a draft would learn",
        options=ReplayOptions,
        run=replay,
    ),
)

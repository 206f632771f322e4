"""`outdraft adapt`: what a draft has learned while it served, and what it would learn from recorded requests."""

import os
import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from outdraft.cli.command import action
from outdraft.cli.learning_replay import ReplayOptions, replay
from outdraft.cli.options import argument, flag
from outdraft.options.errors import CapabilityError, ConfigError
from outdraft.options.paths import user_path

if TYPE_CHECKING:
    from outdraft.adapt.room import AdaptRoom

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


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomOptions:
    """Which room to show, and how."""

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
    """Where to learn, and for how long."""

    room: str | None = argument(None, "the directory of a draft that learns; default: the only one in the cache")
    parent: int | None = flag(None, "the process that it ends with", metavar="PID")


def status(options: RoomOptions) -> int:
    """Show versions, requests and what the gate said."""
    from outdraft.adapt.room import SHARED
    from outdraft.adapt.spool import read_spool
    from outdraft.cli.console import make_console, say, write_json

    room = _room(options.room)
    found = dict[str, dict[str, Any]]()
    for name in room.tenants():
        tenant = room.tenant(name)
        found[name] = {"version": tenant.version, "versions": tenant.versions()}
        found[name] |= {"requests": sum(1 for _ in read_spool(tenant.requests)), "ledger": tenant.ledger()}
    observed = room.observed()
    observed.pop("examined", None)  # round by round, for the learner
    if options.json:
        write_json({"room": str(room.path), "frozen": room.is_frozen, "tenants": found, "observed": observed})
        return 0
    console = make_console()
    lines = [f"{room.path}{', frozen' if room.is_frozen else ''}"]
    lines += [f"draft {room.pair.draft}, target {room.pair.target}"]
    for name, one in sorted(found.items(), key=lambda pair: pair[0] != SHARED):
        lines.append(f"{name}: version {one['version']} serves, {one['requests']} requests are kept")
        lines += [f"  {told['what']} {told.get('number', '')}: {told.get('reason', '')}" for told in one["ledger"][-8:]]
    if observed:
        rates = " ".join(f"{one:.2f}" for one in observed["acceptance"])
        lines += [f"guesses accepted by position: {rates} ({observed['rounds']:.0f} rounds)", observed["diagnosis"]]
    for line in lines:
        say(console, line)
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
    from outdraft.adapt.lock import one_at_a_time
    from outdraft.engine.adapting.learner_process import TAKEN
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
    from outdraft.weights.user_cache import user_cache

    if named is not None:
        return AdaptRoom(user_path(named))
    home = user_cache("adapt")
    found = sorted(home.glob("*/room.json"))
    if not found:
        raise ConfigError(f"no draft learns yet in {home}: outdraft serve MODEL --adapt lets one learn")
    if len(found) > 1:
        listed = "".join(f"\n  {one.parent}" for one in found)
        raise ConfigError(f"{home} holds {len(found)} rooms of drafts that learn: name one{listed}")
    return AdaptRoom(found[0].parent)


def _say(line: str) -> None:
    from outdraft.cli.console import make_console, say

    say(make_console(), line)


ACTIONS = (
    action(status, RoomOptions, "show versions, requests, and what the gate said"),
    action(freeze, FreezeOptions, "keep the version that serves, and learn nothing"),
    action(reset, ResetOptions, "delete all that was kept and learned"),
    action(export, ExportOptions, "copy a version, as a draft of its own"),
    action(learn, LearnOptions, "learn in a room, as the process beside an engine does"),
    action(replay, ReplayOptions, "try on recorded requests, in simulated time, what a draft would learn"),
)

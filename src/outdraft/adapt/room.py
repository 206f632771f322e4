"""The folder of a draft that keeps learning. Engines and one learner meet in it, and nowhere else.

    ROOM/room.json             which target and draft, by digest, and how is learned: another pair is refused
         secret                of names of tenants; only this user may read it
         frozen                while it is there, nothing is learned and no version changes
         shared/ | TENANT/     what belongs to requests without a tenant's name, and to each other tenant alone
             born              another one after a reset, so that no process goes on with what it knew
             requests/         ids of the latest requests (`spool.py`)
             versions/000003/  a draft as its drafter loads it, whole or not there
             current           the version that serves; 0: the draft of the beginning
             ledger.jsonl      what became of every candidate

Files are written beside their place and renamed, so a process may be killed at any moment: what counts is `current`.
"""

import hashlib
import hmac
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Any
from uuid import uuid4

from outdraft.options.errors import ConfigError
from outdraft.options.new_file import new_file
from outdraft.options.read_file import load_json
from outdraft.weights.digest import digest_weights

SHARED = "shared"
_FORMAT = 1
_KEPT = 3  # versions beside the current one, and the one before it
_VERDICTS = ("passed", "failed", "undecided", "kept", "rolled back")  # of the ledger's words
_VERSION = re.compile(r"\d{6,}")
_TENANT = re.compile(rf"{SHARED}|[0-9a-f]{{16}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A target and the draft that it began with."""

    target: Path
    draft: Path

    def digests(self) -> dict[str, str]:
        """Of their weights."""
        return {"target": digest_weights(self.target), "draft": digest_weights(self.draft)}


class TenantRoom:
    """The part of a room that belongs to one tenant."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self) -> str:
        """Make the folder where it is not there; returns `born`."""
        place = self.path / "born"
        if not place.exists():
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            _write_once(place, uuid4().hex.encode())
        return self.born

    @property
    def born(self) -> str:
        """When it began; "" while it is not there."""
        with suppress(FileNotFoundError):
            return (self.path / "born").read_text(encoding="ascii")
        return ""

    @property
    def requests(self) -> Path:
        return self.path / "requests"

    @property
    def version(self) -> int:
        """The one that serves. Raises `OSError` where that cannot be read."""
        with suppress(FileNotFoundError, ValueError):
            return int((self.path / "current").read_text(encoding="ascii"))
        return 0

    @property
    def draft(self) -> Path | None:
        """Where it lies; None: the draft of the beginning serves."""
        return self.place(self.version) if self.version else None

    def place(self, version: int) -> Path:
        return self.path / "versions" / f"{version:06d}"

    def versions(self) -> list[int]:
        """Those that are on disk, oldest first."""
        with suppress(OSError):
            return sorted(int(one.name) for one in (self.path / "versions").iterdir() if _VERSION.fullmatch(one.name))
        return []

    def publish(self, write: Callable[[Path], None]) -> int:
        """Have a draft written, and make it the current one; returns its version. Only the learner calls it."""
        known = [int(one.get("version", 0)) for one in self.ledger()]
        version = max([self.version, *self.versions(), *known]) + 1
        self.begin()
        for left in (self.path / "versions").glob("*-*"):  # begun, or half deleted, by a learner that was killed
            shutil.rmtree(left, ignore_errors=True)
        begun = self.path / "versions" / f"begun-{os.getpid()}"
        begun.mkdir(parents=True, mode=0o700)
        write(begun)
        _sync(begun)
        begun.replace(self.place(version))
        _sync(begun.parent)
        self.point(version)
        return version

    def point(self, version: int) -> None:
        """This version serves from now on; the one before it and the latest stay. Raises `ConfigError` for none."""
        if version and not self.place(version).is_dir():
            raise ConfigError(f"version {version} is not in {self.path}: there are {self.versions() or 'none'}, and 0")
        needed = {version, self.version}
        with new_file(self.path / "current") as beside:
            beside.write_text(f"{version}\n", encoding="ascii")
            _sync(beside)
        for old in [one for one in self.versions() if one not in needed][:-_KEPT]:
            gone = self.path / "versions" / f"gone-{old}"
            with suppress(OSError):  # what is half deleted has no version's name
                shutil.rmtree(self.place(old).replace(gone))

    def note(self, what: str, **more: Any) -> None:
        """Add a line to the ledger; it is on disk when this returns."""
        self.begin()
        line = json.dumps({"at": round(time(), 1), "what": what, **more}) + "\n"
        with (self.path / "ledger.jsonl").open("ab+") as file:
            if file.tell() and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n":
                line = "\n" + line  # the last one was cut off
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())

    def ledger(self) -> list[dict[str, Any]]:
        """What happened, oldest first. A line that was cut off is left out."""
        found = []
        with suppress(FileNotFoundError):
            for line in (self.path / "ledger.jsonl").read_text(encoding="utf-8", errors="replace").splitlines():
                with suppress(ValueError):
                    found.append(json.loads(line))
        return found

    def reset(self) -> None:
        """Nothing of its requests, versions and history is left; the draft of the beginning serves.

        Raises `OSError` where something cannot be deleted.
        """
        gone = self.path.with_name(f".gone-{uuid4().hex}")
        with suppress(FileNotFoundError):
            self.path.rename(gone)  # at once, for processes that are at work in it
            shutil.rmtree(gone)


def last_verdict(tenant: TenantRoom) -> dict[str, Any] | None:
    """What the gate, or the watch, last decided of a tenant's drafts: {what, number, version, reason}."""
    decided = [one for one in tenant.ledger() if one["what"] in _VERDICTS]
    return {key: decided[-1].get(key) for key in ("what", "number", "version", "reason")} if decided else None


class AdaptRoom:
    """A folder that is one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.said = _read(path)
        self.pair = Pair(target=Path(self.said["target"]), draft=Path(self.said["draft"]))

    @classmethod
    def open(cls, path: Path, pair: Pair, options: Mapping[str, Any]) -> "AdaptRoom":
        """The room of this pair, made where it is not there; options of learning are those of the latest engine.

        Raises `ConfigError` for another pair's room, and for a folder with other things in it.
        """
        digests = pair.digests()
        if (path / "room.json").exists():
            _require(path, _read(path), pair, digests)
        elif path.is_dir() and any(path.iterdir()):
            raise ConfigError(f"{path} is a folder with other things in it: name one that is empty, or not there")
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o700)
        said = {"outdraft_adapt": _FORMAT, "target": str(pair.target.resolve()), "draft": str(pair.draft.resolve())}
        with new_file(path / "room.json") as beside:
            beside.write_text(json.dumps({**said, "digests": digests, "options": dict(options)}, indent=1) + "\n")
        _write_once(path / "secret", os.urandom(32))
        return cls(path)

    def require_unchanged(self) -> None:
        """Raise `ConfigError` where its target or its draft has other weights than it was made for."""
        _require(self.path, self.said, self.pair, self.pair.digests())

    @property
    def secret(self) -> bytes:
        """Of this room, and the same as long as it is there."""
        return (self.path / "secret").read_bytes()

    @property
    def is_frozen(self) -> bool:
        """Whether nothing is learned for now."""
        return (self.path / "frozen").exists()

    def observed(self) -> dict[str, Any]:
        """What an engine last said of the guesses; {} where none did."""
        with suppress(OSError, ValueError):
            return dict(load_json(self.path / "observed.json"))
        return {}

    def name_of(self, tenant: str | None) -> str:
        """The folder of a tenant; it says nothing of the name."""
        if not tenant:
            return SHARED
        return hmac.new(self.secret, tenant.encode(), hashlib.sha256).hexdigest()[:16]

    def tenant(self, name: str) -> TenantRoom:
        """The part of one, by the name of its folder."""
        return TenantRoom(self.path / name)

    def tenants(self) -> list[str]:
        """Names of folders that are there."""
        return sorted(one.name for one in self.path.iterdir() if one.is_dir() and _TENANT.fullmatch(one.name))


def _require(path: Path, said: Mapping[str, Any], pair: Pair, digests: Mapping[str, str]) -> None:
    for what, known in said["digests"].items():
        if known != digests[what]:
            raise ConfigError(
                f"{path} belongs to another {what} ({known}) than {getattr(pair, what)} ({digests[what]}): name "
                "another room, or delete this one"
            )


def _read(path: Path) -> dict[str, Any]:
    place = path / "room.json"
    try:
        said = load_json(place)
        if said["outdraft_adapt"] != _FORMAT or not {"target", "draft", "digests", "options"} <= said.keys():
            raise ValueError("another format")
        if said["digests"].keys() != {"target", "draft"}:
            raise ValueError("digests of something else")
    except OSError as error:
        raise ConfigError(
            f"{path} is no room of a draft that learns ({error}): LLM(..., adapt=True) or `outdraft serve --adapt` "
            "makes one"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{place} is damaged or of another version ({error}): delete the room, or name another"
        ) from error
    return dict(said)


def _write_once(place: Path, content: bytes) -> None:
    """A file that is whole from its beginning, and that the first of several processes writes."""
    beside = place.with_name(f".{place.name}-{uuid4().hex}")
    handle = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        os.write(handle, content)
        os.fsync(handle)
        with suppress(FileExistsError):
            os.link(beside, place)
    finally:
        os.close(handle)
        beside.unlink()


def _sync(place: Path) -> None:
    """On disk before anything points to it: a file, or a folder and all in it."""
    below = place.rglob("*") if place.is_dir() else ()
    for one in [*(one for one in below if one.is_file() or one.is_dir()), place]:
        handle = os.open(one, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

"""The folder of a draft that keeps learning. One engine, or several, and one learner meet in it, and nowhere else.

    ROOM/room.json             which target and draft, by digest, and how is learned: another pair is refused
         secret                of names of tenants; only this user may read it
         frozen                while it is there, nothing is learned and no version changes
         shared/ | TENANT/     what belongs to requests without a tenant's name, and to each other tenant alone
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

from outdraft.options.errors import ConfigError
from outdraft.options.new_file import new_file
from outdraft.options.read_file import load_json
from outdraft.weights.digest import digest_weights

SHARED = "shared"
_FORMAT = 1
_KEPT = 3  # versions beside the current one
_LEDGER = 2000  # lines
_VERSION = re.compile(r"\d{6}")


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

    @property
    def requests(self) -> Path:
        """The folder of its requests."""
        return self.path / "requests"

    @property
    def version(self) -> int:
        """The one that serves."""
        try:
            return int((self.path / "current").read_text(encoding="ascii"))
        except (OSError, ValueError):
            return 0

    @property
    def draft(self) -> Path | None:
        """Where it lies; None: the draft of the beginning serves."""
        return self.place(self.version) if self.version else None

    def place(self, version: int) -> Path:
        """The folder of a version."""
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
        begun = self.path / "versions" / f"begun-{os.getpid()}"
        shutil.rmtree(begun, ignore_errors=True)
        begun.mkdir(parents=True, mode=0o700)
        write(begun)
        _sync(begun)
        begun.replace(self.place(version))
        self.point(version)
        return version

    def point(self, version: int) -> None:
        """This version serves from now on; older ones go, but for the latest. Raises `ConfigError` where it is gone."""
        if version and not self.place(version).is_dir():
            raise ConfigError(f"version {version} is not in {self.path}: there are {self.versions() or 'none'}, and 0")
        with new_file(self.path / "current") as beside:
            beside.write_text(f"{version}\n", encoding="ascii")
            _sync(beside)
        for old in [one for one in self.versions() if one != version][:-_KEPT]:
            shutil.rmtree(self.place(old), ignore_errors=True)

    def note(self, what: str, **more: Any) -> None:
        """Add a line to the ledger."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        line = json.dumps({"at": round(time(), 1), "what": what, **more}) + "\n"
        with (self.path / "ledger.jsonl").open("a", encoding="utf-8") as file:
            file.write(line)

    def ledger(self) -> list[dict[str, Any]]:
        """What happened, oldest first. A line that was cut off is left out."""
        found = []
        with suppress(OSError):
            for line in (self.path / "ledger.jsonl").read_text(encoding="utf-8").splitlines()[-_LEDGER:]:
                with suppress(ValueError):
                    found.append(json.loads(line))
        return found

    def reset(self) -> None:
        """Nothing of its requests, versions and history is left; the draft of the beginning serves."""
        shutil.rmtree(self.path, ignore_errors=True)


class Room:
    """A folder that is one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.said = _read(path)
        self.pair = Pair(target=Path(self.said["target"]), draft=Path(self.said["draft"]))

    @classmethod
    def open(cls, path: Path, pair: Pair, options: Mapping[str, Any]) -> "Room":
        """The room of this pair, made where it is not there; options of learning are those of the latest engine.

        Raises `ConfigError` where another pair's room lies there.
        """
        digests = pair.digests()
        if (path / "room.json").exists():
            known = _read(path)["digests"]
            for what in digests:
                if known[what] != digests[what]:
                    raise ConfigError(
                        f"{path} belongs to another {what} ({known[what]}) than {getattr(pair, what)} "
                        f"({digests[what]}): name another room, or delete this one"
                    )
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        said = {"outdraft_adapt": _FORMAT, "target": str(pair.target.resolve()), "draft": str(pair.draft.resolve())}
        with new_file(path / "room.json") as beside:
            beside.write_text(json.dumps({**said, "digests": digests, "options": dict(options)}, indent=1) + "\n")
        secret = path / "secret"
        if not secret.exists():
            with (
                suppress(FileExistsError),
                os.fdopen(os.open(secret, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file,
            ):
                file.write(os.urandom(32))
        return cls(path)

    def require_unchanged(self) -> None:
        """Raise `ConfigError` where its target or its draft has other weights than it was made for."""
        self.open(self.path, self.pair, self.said["options"])

    @property
    def is_frozen(self) -> bool:
        """Whether nothing is learned for now."""
        return (self.path / "frozen").exists()

    def name_of(self, tenant: str | None) -> str:
        """The folder of a tenant; it says nothing of the name."""
        if not tenant:
            return SHARED
        return hmac.new((self.path / "secret").read_bytes(), tenant.encode(), hashlib.sha256).hexdigest()[:16]

    def tenant(self, name: str) -> TenantRoom:
        """The part of one, by the name of its folder."""
        return TenantRoom(self.path / name)

    def tenants(self) -> list[str]:
        """Names of folders that are there."""
        return sorted(one.name for one in self.path.iterdir() if one.is_dir() and not one.name.startswith("."))


def _read(path: Path) -> dict[str, Any]:
    place = path / "room.json"
    try:
        said = load_json(place)
        if said["outdraft_adapt"] != _FORMAT or not {"target", "draft", "digests", "options"} <= said.keys():
            raise ValueError("another format")
    except OSError as error:
        raise ConfigError(
            f"{path} is no room of a draft that learns ({error}): LLM(..., adapt=True) or `outdraft serve --adapt` "
            "makes one"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{place} is damaged or of another version ({error}): delete the room, or name another"
        ) from error
    return dict(said)


def _sync(place: Path) -> None:
    """On disk before anything points to it: a file, or all files of a folder and the folder."""
    for one in [*(place.iterdir() if place.is_dir() else ()), place]:
        handle = os.open(one, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

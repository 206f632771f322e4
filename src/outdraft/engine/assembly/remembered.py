"""Save what a policy has measured on disk, for the next engine of the same model on the same machine.

    ~/.cache/outdraft/pace/3f0c9a52e1b7d604.json     named for machine, kernels, model and drafter
    {"format": 2, "of": {...}, "kept": {...}}        `of`: what it was measured on, in words; `kept`: the policy's own

Only speed depends on it, never a greedy or seeded text: it is the starting point of a policy's estimates. A file that
is damaged, too large, of another format or of something else is not used, and is replaced by the next one; a place
that cannot be written to is left alone. `OUTDRAFT_REMEMBER=off` turns all of it off, and so does
`OUTDRAFT_CACHE=off`, which keeps nothing at all.
"""

import hashlib
import json
import logging
import os
import platform
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Protocol, runtime_checkable

from outdraft import __version__
from outdraft.core.cores import count_cores
from outdraft.core.events import StepEvent
from outdraft.core.policy import Budget, Keeps, Policy, spared_by
from outdraft.core.sequence import Sequence
from outdraft.kernels.threads import num_threads
from outdraft.options.errors import ConfigError
from outdraft.options.new_file import new_file
from outdraft.options.read_file import load_json
from outdraft.weights.gguf_files import part_paths
from outdraft.weights.user_cache import is_kept, user_cache

SWITCH = "OUTDRAFT_REMEMBER"  # "off": nothing is read or written
_FORMAT = 2
_LARGEST = 1 << 18  # bytes of a file
_MOST_FILES = 200
_PAUSE, _LONGEST = 20.0, 600.0  # seconds until the second file, and at most between two; the first is written at once
_log = logging.getLogger(__name__)


@runtime_checkable
class KeepingPolicy(Policy, Keeps, Protocol):
    """A policy that keeps what it measures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the costs of one engine are kept, and what they are of."""

    path: Path
    of: Mapping[str, Any]

    def read(self) -> Mapping[str, Any] | None:
        """What was kept; None where there is nothing that can be used."""
        try:
            told = load_json(self.path, most=_LARGEST)
        except (OSError, ValueError):
            return None
        if not isinstance(told, dict) or told.get("format") != _FORMAT or told.get("of") != self.of:
            return None
        kept = told.get("kept")
        return kept if isinstance(kept, dict) else None

    def write(self, kept: Mapping[str, Any]) -> bool:
        """Whole or not at all; the oldest files go where there are too many. Returns whether it could be done."""
        text = json.dumps({"format": _FORMAT, "of": self.of, "kept": kept})
        if len(text) > _LARGEST:
            return False
        try:
            with new_file(self.path) as beside:
                beside.write_text(text, encoding="utf-8")
            _prune(self.path.parent)
        except (ConfigError, OSError):
            return False
        return True


class Remembering:
    """A policy that begins with what was kept, and keeps what it learns when texts end."""

    def __init__(self, inner: KeepingPolicy, place: Place) -> None:
        self.inner = inner
        self._place = place
        self._pause, self._last = 0.0, monotonic()
        if (kept := place.read()) is not None:
            try:
                inner.recall(kept)
            except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError) as error:
                _log.info("%s is not used, and will be replaced: %s", place.path, error)
            else:
                self._pause = _PAUSE

    def plan(self, seqs: Seq[Sequence]) -> list[Budget]:
        return self.inner.plan(seqs)

    def spare(self, seq: Sequence, crowd: int) -> frozenset[int]:
        return spared_by(self.inner, seq, crowd)

    def update(self, events: Seq[StepEvent]) -> None:
        self.inner.update(events)

    def end(self, seqs: Seq[Sequence]) -> None:
        """These are over: now and then, what was learned is kept."""
        self.inner.end(seqs)
        if monotonic() - self._last >= self._pause:
            self.keep()

    def keep(self) -> None:
        """Write it now, where something is known."""
        self._last, self._pause = monotonic(), min(_LONGEST, max(_PAUSE, 2 * self._pause))
        if (kept := self.inner.keep()) is not None and not self._place.write(kept):
            self._pause = _LONGEST


def remembering(policy: KeepingPolicy, directory: Path, config: Mapping[str, Any]) -> Policy:
    """The policy with a memory, unless that is switched off. `config`: the resolved configuration of its engine."""
    if os.environ.get(SWITCH, "").lower() in ("off", "0", "no", "false") or not is_kept():
        return policy
    of = {
        "outdraft": __version__,
        "machine": [_processor(), count_cores(), num_threads()],
        "model": [str(directory), *_files(directory)],
        "config": json.loads(json.dumps({**config, "recipe": None}, default=str)),
    }
    name = hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()[:16]
    return Remembering(policy, Place(path=user_cache("pace", f"{name}.json"), of=of))


def _files(directory: Path) -> list[list[Any]]:
    """What a model's files are by name, size and time: they are too large to be read at every start."""
    try:
        files = sorted([*directory.glob("*.safetensors"), directory / "config.json"])
        if directory.is_file():  # a GGUF file
            files = part_paths(directory)
        return [[one.name, one.stat().st_size, one.stat().st_mtime_ns] for one in files if one.is_file()]
    except OSError:
        return []


def _processor() -> str:
    try:
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        told = ""
    named = next((line for line in told.splitlines() if line.startswith("model name")), "")
    return named.partition(":")[2].strip() or platform.processor() or platform.machine()


def _prune(folder: Path) -> None:
    """The oldest go. Another process may be doing the same."""
    files = list(folder.glob("*.json"))
    if len(files) > _MOST_FILES:
        for one in sorted(files, key=lambda file: file.stat().st_mtime)[: len(files) - _MOST_FILES]:
            one.unlink(missing_ok=True)

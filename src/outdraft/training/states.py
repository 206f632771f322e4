"""The target's states on disk, so that a pass over the same rows is made once: within a budget of bytes.

    DIR/about.json                        the target, the taps, the number format, the texts
        <digest of the rows>.safetensors  ids [B, T], hidden [B * T, D], tap.<n> [B * T, D] after n layers

A file is of one pass, since the bits of a matrix product may depend on all rows that it is made for: so training ends
with the same bits with the cache, without it, and with one that is half full. What was cut off while it was written is
made again; states that are no numbers are refused, and so is a cache of another target, of other texts, or of fewer
taps. The file holds last states and not logits, as others' caches do: the head makes those again, and a state is
smaller.
"""

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from outdraft.options.errors import ConfigError
from outdraft.options.new_file import new_file
from outdraft.options.read_file import load_json, require_file
from outdraft.options.shown import shown
from outdraft.training.corpus import TrainingCorpus
from outdraft.training.packing import PackedRows

_FORMAT = 2
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassStates:
    """The target's hidden states of one pass, the taps included."""

    hidden: Tensor  # [B * T, D] after the last layer, not normed
    taps: Mapping[int, Tensor]


def identity(
    target: Mapping[str, Any], taps: tuple[int, ...], dtype: torch.dtype, *texts: TrainingCorpus
) -> dict[str, Any]:
    """What a cache is of. `target`: its fingerprint."""
    return {
        "format": _FORMAT,
        "target": dict(target),
        "taps": list(taps),
        "dtype": str(dtype).removeprefix("torch."),
        "texts": [one.digest for one in texts],
    }


class PassCache:
    """Passes on disk. `most`: bytes of all files together; each of the `workers` fills up its share of what is left.

    What another run writes there meanwhile is not counted: of two that begin together each fills up what is left.
    """

    def __init__(self, place: Path, about: Mapping[str, Any], most: int, *, workers: int = 1) -> None:
        self._place, self._most = place, most // workers
        path = place / "about.json"
        if path.exists():
            _require_same(path, about)
        else:
            with new_file(path) as beside:
                beside.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        self._bytes = sum(file.stat().st_size for file in place.glob("*.safetensors")) // workers
        self._layers: int = about["target"]["num_layers"]
        self._taps: list[int] = about["taps"]

    def find(self, rows: PackedRows) -> PassStates | None:
        """What is known of a pass. Raises `ConfigError` for states that are no numbers."""
        path = self._path(rows)
        if not path.is_file():
            return None
        try:
            with safe_open(require_file(path), framework="pt") as file:
                held = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError):
            return None  # cut off, or damaged: it is made again, and written over
        if "hidden" not in held or not torch.equal(held.pop("ids", torch.empty(0)), rows.ids[:, :-1]):
            return None
        for name, states in held.items():
            if not bool(torch.isfinite(states).all()):
                raise ConfigError(
                    f"{path} holds states that are not finite numbers ({name}): delete it, and they are made again"
                )
        taps = {tap: held["hidden"] if tap == self._layers else held.get(f"tap.{tap}") for tap in self._taps}
        if any(states is None for states in taps.values()):
            return None
        return PassStates(hidden=held["hidden"], taps={tap: one for tap, one in taps.items() if one is not None})

    def keep(self, rows: PackedRows, states: PassStates) -> None:
        """Write a pass, if there is room for it; where the disk takes no more, nothing is kept from then on."""
        made = {"ids": rows.ids[:, :-1].contiguous(), "hidden": states.hidden.cpu().contiguous()}
        made |= {f"tap.{tap}": one.cpu().contiguous() for tap, one in states.taps.items() if tap != self._layers}
        size = sum(one.nbytes for one in made.values()) + 1024  # and its header
        path = self._path(rows)
        before = path.stat().st_size if path.is_file() else 0
        if self._bytes - before + size > self._most:
            return
        try:
            with new_file(path) as beside:
                save_file(made, beside)
        except (SafetensorError, ConfigError) as error:  # the latter: what the operating system refuses
            _log.warning(
                "%s takes no more states (%s): from now on they are made anew in every pass", self._place, error
            )
            self._most = 0
            return
        self._bytes += path.stat().st_size - before

    def _path(self, rows: PackedRows) -> Path:
        read = (rows.ids[:, :-1].contiguous(), rows.documents[:, :-1].contiguous())
        whole = hashlib.sha256(repr(tuple(read[0].shape)).encode())
        for part in read:
            whole.update(part.numpy().tobytes())
        return self._place / f"{whole.hexdigest()[:32]}.safetensors"


def _require_same(path: Path, about: Mapping[str, Any]) -> None:
    try:
        told = load_json(path)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path} cannot be read ({error}): delete the cache beside it, or name another directory"
        ) from error
    for key, mine in about.items():
        theirs = told.get(key) if isinstance(told, dict) else None
        if theirs != mine and not (key == "taps" and _holds(theirs, mine, about["target"]["num_layers"])):
            raise ConfigError(
                f"{path.parent} caches the states of another run: {key} is {shown(theirs)} there and {shown(mine)} "
                "here; name another directory (cache_dir), or delete it"
            )


def _holds(theirs: Any, mine: list[int], last: int) -> bool:
    """Whether a cache of these taps has others too; last states always lie in it."""
    return isinstance(theirs, list) and set(mine) - {last} <= set(theirs)

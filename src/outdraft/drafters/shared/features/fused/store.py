"""Networks of a kind to and from directories in speculators' layout, which is ours too.

config.json names its target, so that `vllm serve DIR` finds it; layers.0.*; the taps in both conventions (`files.py`)
"""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from outdraft.core.head_format import HeadFormat
from outdraft.drafters.shared.features.fused.files import FusedFiles, FusedKind, read_fused, written
from outdraft.drafters.shared.features.fused.net import FusedNet, Lent, lent_by
from outdraft.drafters.shared.learning.vocab import differences, membership
from outdraft.models.families.catalogue import ARCHITECTURES
from outdraft.models.families.shared.naming import Entry
from outdraft.models.files.foreign_heads import fill, read_config, tensors_of_net, write_directory
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.port import TargetFacts, TargetPort, facts_of
from outdraft.options.read_file import load_json

Net = TypeVar("Net", bound=FusedNet, covariant=True)
OfNet = TypeVar("OfNet", bound=FusedNet)


class Load(Protocol[Net]):
    """How a kind reads a directory."""

    def __call__(
        self, directory: Path, facts: TargetFacts, dtype: torch.dtype | None = None, *, lent: Lent | None = None
    ) -> Net:
        """The network for this target, in the target's type unless `dtype` is given."""
        ...


def save_fused(
    net: FusedNet,
    kind: FusedKind,
    entries: Iterable[Entry],
    directory: Path,
    dtype: torch.dtype | None,
    *,
    num_tokens: int = 3,
    more: Mapping[str, Any] | None = None,
) -> None:
    """config.json and model.safetensors. `dtype`: of the numbers; their own by default. `more`: the kind's own keys."""
    tensors = tensors_of_net(net, entries, dtype)
    if net.vocab is not None:
        tensors["d2t"] = differences(net.vocab)
        tensors["t2d"] = membership(net.vocab, net.config.layers.vocab_size)
    write_directory(directory, {**written(net.config, dtype or net.dtype, kind, num_tokens), **(more or {})}, tensors)


def fill_fused(
    files: FusedFiles,
    kind: FusedKind,
    facts: TargetFacts,
    entries: Iterable[Entry],
    make: Callable[[torch.device, Tensor | None], OfNet],
    directory: Path,
) -> OfNet:
    """The network of these files. `make`: an empty one on a device, with its tokens.

    Raises `ModelLoadError` for damaged files, `CapabilityError` for another target's network.
    """
    files.config.require(facts)
    return fill(
        lambda device: make(device or facts.device, files.vocab if device is None else None),
        entries,
        files.tensors,
        f"{kind.what} in {directory}",
        beside=("d2t", "t2d"),
    )


def read_stored(
    kind: FusedKind, load: Load[OfNet], directory: Path, target: Decoder | TargetPort, dtype: torch.dtype | None
) -> OfNet:
    """A network in the type that it is stored in, unless `dtype` is given."""
    facts = facts_of(target)
    stored = dtype or read_fused(directory, facts.num_layers, kind).tensors["norm.weight"].dtype
    return load(directory, facts, stored, lent=lent_by(target))


def speculators_format(
    kind: FusedKind, load: Load[OfNet], save: Callable[[OfNet, Path], None], *, summary: str, served: Mapping[str, str]
) -> HeadFormat[OfNet, Decoder | TargetPort, Decoder]:
    """Our own files, which then name their target."""

    def write(net: OfNet, target: Decoder, target_name: str, directory: Path) -> None:
        save(net, directory)
        path = directory / "config.json"
        told = load_json(path)
        architecture = ARCHITECTURES[target.config.architecture].class_name
        told["speculators_config"]["verifier"] = {"name_or_path": target_name, "architectures": [architecture]}
        path.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")

    return HeadFormat(
        name="speculators",
        summary=summary,
        matches=lambda directory: read_config(directory).get("speculators_model_type") == kind.model_type,
        read=lambda directory, target, dtype: read_stored(kind, load, directory, target, dtype),
        write=write,
        served=served,
    )

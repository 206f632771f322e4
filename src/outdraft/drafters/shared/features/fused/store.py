"""Networks of a kind to and from directories in speculators' layout, which is ours too.

config.json names its target, so that `vllm serve DIR` finds it; layers.0.*; taps in both conventions (`files.py`)
"""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import torch

from outdraft.core.head_format import HeadFormat
from outdraft.drafters.shared.features.fused.files import FusedKind, read_fused, written
from outdraft.drafters.shared.features.fused.net import FusedNet, entries_of
from outdraft.drafters.shared.learning.vocab import STORED, stored
from outdraft.models.families.catalogue import ARCHITECTURES
from outdraft.models.files.foreign_heads import fill, read_config, stored_dtype, tensors_of_net, write_directory
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.port import TargetFacts, TargetPort, facts_of
from outdraft.options.read_file import load_json

Format = HeadFormat[FusedNet, Decoder | TargetPort, Decoder]


def save_fused(kind: FusedKind, net: FusedNet, directory: Path, dtype: torch.dtype | None = None) -> None:
    """config.json and model.safetensors. `dtype`: of the numbers; their own by default."""
    tensors = tensors_of_net(net, entries_of(net.config), dtype) | stored(net.vocab, net.config.layers.vocab_size)
    write_directory(directory, written(kind, net.config, dtype or net.dtype), tensors)


def load_fused(
    kind: FusedKind,
    directory: Path,
    facts: TargetFacts,
    dtype: torch.dtype | None = None,
    *,
    lent: Decoder | TargetPort | None = None,
) -> FusedNet:
    """The network in `directory`, in whatever spelling, for this target; in the target's type unless `dtype` is given.

    lent: the target itself; without it a network that has no head of its own cannot draft.

    Raises `ModelLoadError` for damaged or contradictory files, `CapabilityError` for another target's network.
    """
    files = read_fused(kind, directory, facts.num_layers)
    files.config.require(facts)

    def make(device: torch.device | None) -> FusedNet:
        own = files.vocab if device is None else None
        return FusedNet(files.config, dtype or facts.dtype, device or facts.device, own, lent)

    return fill(make, entries_of(files.config), files.tensors, f"{kind.what} in {directory}", beside=STORED)


def read_stored(kind: FusedKind, directory: Path, target: Decoder | TargetPort, dtype: torch.dtype | None) -> FusedNet:
    """A network in the type that it is stored in, unless `dtype` is given."""
    facts = facts_of(target)
    stored = dtype or stored_dtype(read_fused(kind, directory, facts.num_layers).tensors)
    return load_fused(kind, directory, facts, stored, lent=target)


def speculators_format(kind: FusedKind, *, summary: str, served: Mapping[str, str]) -> Format:
    """Our own files, which then name their target."""

    def write(net: FusedNet, target: Decoder, target_name: str, directory: Path) -> None:
        save_fused(kind, net, directory)
        path = directory / "config.json"
        told = load_json(path)
        architecture = ARCHITECTURES[target.config.architecture].class_name
        told["speculators_config"]["verifier"] = {"name_or_path": target_name, "architectures": [architecture]}
        path.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")

    return HeadFormat(
        name="speculators",
        summary=summary,
        matches=lambda directory: read_config(directory).get("speculators_model_type") == kind.model_type,
        read=partial(read_stored, kind),
        write=write,
        served=served,
    )

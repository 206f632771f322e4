"""Medusa's heads on disk: ours, and as the authors publish them (https://github.com/FasterDecoding/Medusa).

    medusa_lm_head.safetensors or .pt   {head}.{layer}.linear.{weight, bias}; the projection {head}.{layers}.weight
    model.safetensors                   the same behind "medusa_head.", inside the target (merged, version 1.0)

The number of heads and layers is that of the file: published configurations are known to say less. The heads read the
target's state behind its final norm, as ours do.
"""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from outdraft.core.head_format import HeadFormat
from outdraft.drafters.medusa.net import MedusaConfig, MedusaNet
from outdraft.drafters.shared.heads.files import Formats, our_layout, read_any, require_projection, require_published
from outdraft.drafters.shared.heads.net import borrowed_matrix
from outdraft.models.families.shared.naming import Entry, linear
from outdraft.models.files.foreign_heads import (
    fill,
    read_config,
    stored_dtype,
    tell_count,
    tensor_names,
    tensors_of_net,
    write_directory,
)
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.port import TargetPort, facts_of
from outdraft.options.errors import ModelLoadError
from outdraft.weights.renamed import open_tensors

FILES, PREFIX = ("medusa_lm_head.safetensors", "medusa_lm_head.pt"), "medusa_head."
_PART = re.compile(r"(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})\.(weight|linear\..+)")


def _published(directory: Path) -> bool:
    return any((directory / name).exists() for name in FILES) or (
        "medusa_num_heads" in read_config(directory)
        and any(name.startswith(PREFIX) for name in tensor_names(directory))
    )


def _read_published(directory: Path, target: Decoder | TargetPort, dtype: torch.dtype | None) -> MedusaNet:
    """The heads, for this target."""
    facts, found = facts_of(target), open_tensors(directory, FILES, PREFIX)
    parts = [one for name in found if (one := _PART.fullmatch(name))]
    last = {int(one[1]): int(one[2]) for one in parts if one[3] == "weight"}  # head -> index of its projection
    layers = {one[2] for one in parts if one[3] != "weight"}
    if sorted(last) != list(range(len(last))) or set(last.values()) != {len(layers)}:
        raise ModelLoadError(
            f"{directory} holds no Medusa heads: it has no projections 0.N.weight, 1.N.weight, ... behind N layers "
            f"(it has {len(layers)})"
        )
    projection = found[f"0.{last[0]}.weight"]
    require_projection(projection, facts, directory, MedusaNet.what)
    config = MedusaConfig(
        tap=facts.num_layers,
        hidden_size=facts.hidden_size,
        vocab_size=facts.vocab_size,
        num_heads=len(last),
        num_layers=last[0],
    )
    told = read_config(directory)
    tell_count(directory, told, "medusa_num_heads", config.num_heads)
    tell_count(directory, told, "medusa_num_layers", config.num_layers)
    wanted = dtype or stored_dtype(found)
    return fill(
        lambda device: MedusaNet(config, wanted, device or facts.device),
        _table(config),
        found,
        f"Medusa heads in {directory}",
    )


def _table(config: MedusaConfig) -> Iterator[Entry]:
    """Where each of our parameters stands in their file."""
    for head in range(config.num_heads):
        for layer in range(config.num_layers):
            yield from linear(f"layers.{head}.{layer}.linear", [f"{head}.{layer}.linear"], True)
        if config.own_projections:
            yield from linear(f"projections.{head}", [f"{head}.{config.num_layers}"], False)


def _write_published(net: MedusaNet, target: Decoder, target_name: str, directory: Path) -> None:
    """config.json and medusa_lm_head.safetensors. Raises `CapabilityError` for heads of an inflated target."""
    require_published(net)
    told: dict[str, Any] = {
        "base_model_name_or_path": target_name,
        "medusa_num_heads": net.config.num_heads,
        "medusa_num_layers": net.config.num_layers,
        "hidden_size": net.config.hidden_size,
        "vocab_size": net.config.vocab_size,
    }
    made, dtype = tensors_of_net(net, _table(net.config)), next(net.parameters()).dtype
    if not net.config.own_projections:
        head = borrowed_matrix(target, dtype)
        made |= {f"{one}.{net.config.num_layers}.weight": head for one in range(net.config.num_heads)}
    write_directory(directory, told, made, name=FILES[0])


FORMATS: Formats = (
    HeadFormat(
        name="medusa",
        summary="the authors' layout: medusa_lm_head.safetensors",
        matches=_published,
        read=_read_published,
        write=_write_published,
    ),
    our_layout(MedusaNet),
)
load = partial(read_any, MedusaNet, FORMATS)  # the heads in a directory of any layout, for a target, in a type

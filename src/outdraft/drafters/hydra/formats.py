"""Hydra's heads on disk: ours, and as the authors publish them (https://github.com/zankner/Hydra).

    hydra_lm_head.pt    hydra_mlp.{head}.0.{linear, res_connection}.{weight, bias}, hydra_mlp.{head}.{layer}.linear...,
                        hydra_lm_head.{head}.{weight, bias}
    Hydra++             the layers at 1, 3, 5, ..., the projection at .1 (places of dropout lie between them), and
                        prefix_embeding_layer (spelled so), one decoder layer with its norm

Grounded heads of the architectures "mlp" and "prefix-mlp" are read; the numbers of heads and layers are the file's.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from outdraft.core.head_format import HeadFormat
from outdraft.drafters.hydra.net import HydraConfig, HydraNet
from outdraft.drafters.shared.heads.files import Formats, our_layout, read_any, require_projection, require_published
from outdraft.drafters.shared.heads.layers import shape_of
from outdraft.drafters.shared.heads.net import borrowed_matrix
from outdraft.models.families.shared.fields import Fields, check_keys
from outdraft.models.families.shared.naming import Entry, layer_entries, linear
from outdraft.models.files.foreign_heads import (
    fill,
    read_config,
    stored_dtype,
    tell_count,
    tensors_of_net,
    write_directory,
)
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.port import TargetFacts, TargetPort, facts_of
from outdraft.options.errors import CapabilityError, ModelLoadError
from outdraft.weights.renamed import HeldTensors, open_tensors

FILES = ("hydra_lm_head.safetensors", "hydra_lm_head.pt")
_PREFIX = "prefix_embeding_layer"
_TABLES = ("input_embed_fn.weight", f"{_PREFIX}.embed_tokens.weight")  # the target's embeddings; one that is not read
_KNOWN: Mapping[str, tuple[Any, ...]] = {
    "hydra_head_arch": ("mlp", "prefix-mlp"),
    "grounded_heads": (True,),
    "hidden_state_offset": (0,),
}
_BESIDE = (*_KNOWN, "base_model_name_or_path", "hydra_num_heads", "hydra_num_layers")


def _read_published(directory: Path, target: Decoder | TargetPort, dtype: torch.dtype | None) -> HydraNet:
    """The heads, for this target, whose kind of attention the prefix layer has."""
    facts, told, found = facts_of(target), read_config(directory), dict(open_tensors(directory, FILES))
    for key, known in _KNOWN.items():
        if (value := told.get(key, known[0])) not in known:
            raise CapabilityError(f"{directory}: heads with {key}={value!r} are not read; known: {known}")
    for name in _TABLES:
        found.pop(name, None)
    layers = {one[1] for name in found if (one := re.match(r"hydra_mlp\.0\.(\d+)\.", name))}
    heads = {one[1] for name in found if (one := re.match(r"hydra_lm_head\.(\d+)\.", name))}
    projection = found.get("hydra_lm_head.0.weight", found.get("hydra_lm_head.0.1.weight"))
    if projection is None or not layers:
        raise ModelLoadError(f"{directory} holds no Hydra heads: it has no hydra_mlp.0 and hydra_lm_head.0")
    require_projection(projection, facts, directory, HydraNet.what)
    fields = Fields({**told, "model_type": "hydra"})
    config = HydraConfig(
        tap=facts.num_layers,
        hidden_size=facts.hidden_size,
        vocab_size=facts.vocab_size,
        num_heads=len(heads),
        num_layers=len(layers),
        bypass=True,
        projection_bias=True,
        **_stem(found, fields, facts, directory),
    )
    check_keys(told, fields.used, fields.name, strict=False, beside=_BESIDE)
    tell_count(directory, told, "hydra_num_heads", config.num_heads)
    tell_count(directory, told, "hydra_num_layers", config.num_layers)
    plain = _straight(config)
    if all(name in found and torch.equal(found[name], tensor.to(found[name])) for name, tensor in plain.items()):
        found = {name: tensor for name, tensor in found.items() if name not in plain}  # h is handed through: no bypass
        config = replace(config, bypass=False, projection_bias=False)
    tensors = HeldTensors(found, directory)
    wanted = dtype or stored_dtype(tensors)
    return fill(
        lambda device: HydraNet(config, wanted, device or facts.device),
        _table(config),
        tensors,
        f"Hydra heads in {directory}",
    )


def _stem(found: Mapping[str, Tensor], fields: Fields, facts: TargetFacts, directory: Path) -> dict[str, Any]:
    """The sizes of the prefix layer, by its tensors and its target. Raises `ModelLoadError` for what is none."""
    gate, q = (found.get(f"{_PREFIX}.layers.0.{name}.weight") for name in ("mlp.gate_proj", "self_attn.q_proj"))
    if gate is None or q is None:
        return {}
    if gate.dim() != 2 or q.dim() != 2:
        raise ModelLoadError(f"{directory}: q_proj and gate_proj of {_PREFIX} must be matrices: download it again")
    fields.only(rope_scaling={"rope_type": "default"})
    return {
        "num_stem_layers": 1,
        "stem_heads": q.shape[0] // facts.head_dim,
        "stem_kv_heads": facts.num_kv_heads,
        "stem_head_dim": facts.head_dim,
        "stem_inner": gate.shape[0],
        "stem_norm": True,
        "stem_rope_theta": fields.get("rope_theta", float, 10000.0),
        "stem_norm_eps": fields.get("rms_norm_eps", float, 1e-6),
    }


def _table(config: HydraConfig) -> Iterator[Entry]:
    """Where each of our parameters stands in their file."""
    first, step, behind = (1, 2, ".1") if config.num_stem_layers else (0, 1, "")
    for head in range(config.num_heads):
        layer = f"hydra_mlp.{head}.{first}"
        yield from linear(f"mixers.{head}", [f"{layer}.linear"], True)
        if config.bypass:
            yield from linear(f"bypasses.{head}", [f"{layer}.res_connection"], True)
        for i in range(1, config.num_layers):
            yield from linear(f"layers.{head}.{i - 1}.linear", [f"hydra_mlp.{head}.{first + step * i}.linear"], True)
        if config.own_projections:
            yield from linear(f"projections.{head}", [f"hydra_lm_head.{head}{behind}"], config.projection_bias)
    if config.num_stem_layers:
        yield from layer_entries("stem.blocks.0", f"{_PREFIX}.layers.0", shape_of(config))
        yield Entry(ours="stem.norm.weight", theirs=(f"{_PREFIX}.norm.weight",))


def _write_published(net: HydraNet, target: Decoder, target_name: str, directory: Path) -> None:
    """config.json and hydra_lm_head.safetensors. Raises `CapabilityError` for what the layout cannot say."""
    config = net.config
    require_published(net)
    if config.num_stem_layers and not config.stem_norm:
        raise CapabilityError("the published prefix layer has a norm behind it, and that of these heads has none")
    made, dtype = tensors_of_net(net, _table(config)), next(net.parameters()).dtype
    if not config.bypass:
        made |= {name: tensor.to(dtype) for name, tensor in _straight(config).items()}
    if not config.own_projections:
        behind = ".1" if config.num_stem_layers else ""
        projection = borrowed_matrix(target, dtype)
        made |= {f"hydra_lm_head.{head}{behind}.weight": projection for head in range(config.num_heads)}
    told: dict[str, Any] = {
        "base_model_name_or_path": target_name,
        "hydra_num_heads": config.num_heads,
        "hydra_num_layers": config.num_layers,
        "hydra_head_arch": "prefix-mlp" if config.num_stem_layers else "mlp",
        "grounded_heads": True,
        "hidden_state_offset": 0,
    }
    if config.num_stem_layers:
        told |= {"rope_theta": config.stem_rope_theta, "rms_norm_eps": config.stem_norm_eps}
    write_directory(directory, told, made, name=FILES[0])


def _straight(config: HydraConfig) -> dict[str, Tensor]:
    """What the layout has and our plain heads have not: a bypass that hands h through, and biases of zero."""
    width, first, behind = config.hidden_size, *((1, ".1") if config.num_stem_layers else (0, ""))
    found: dict[str, Tensor] = {}
    for head in range(config.num_heads):
        bypass = f"hydra_mlp.{head}.{first}.res_connection"
        found[f"{bypass}.weight"] = torch.eye(width, (head + 2) * width)
        found[f"{bypass}.bias"] = torch.zeros(width)
        found[f"hydra_lm_head.{head}{behind}.bias"] = torch.zeros(config.vocab_size)
    return found


FORMATS: Formats = (
    HeadFormat(
        name="hydra",
        summary="the authors' layout: hydra_lm_head.pt",
        matches=lambda directory: any((directory / name).exists() for name in FILES),
        read=_read_published,
        write=_write_published,
    ),
    our_layout(HydraNet),
)
load = partial(read_any, HydraNet, FORMATS)  # the heads in a directory of any layout, for a target, in a type

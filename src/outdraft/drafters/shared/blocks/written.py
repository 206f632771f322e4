"""What config.json says of a block network, in both layouts (`keys.py`), every key explicit."""

from collections.abc import Mapping
from typing import Any

import torch

from outdraft.drafters.shared.blocks.keys import FLAT_TAPS, LAYERS, NESTED, NORMS, RUNTIME, SINKS, TAPS, VALUES
from outdraft.drafters.shared.blocks.net import BlockConfig
from outdraft.models.families.catalogue import ARCHITECTURES
from outdraft.models.families.llama import kinds_of
from outdraft.models.files.foreign_heads import speculators_config
from outdraft.options.errors import CapabilityError


def written(config: BlockConfig, name: str, architecture: str, dtype: torch.dtype) -> dict[str, Any]:
    """In speculators' layout. `name`: speculators_model_type."""
    told = {
        "architectures": [architecture],
        **speculators_config(name, None, []),
        **_common(config, dtype),
        **_parts(config),
        **_norms(config),
        "is_causal": config.causal,
        "sliding_window_non_causal": not config.causal_windows,
        TAPS[0]: list(config.taps),
        "draft_vocab_size": config.draft_vocab_size,
        "target_hidden_size": config.target_hidden_size,
        LAYERS: _shape(config),
    }
    (way,) = told["speculators_config"]["proposal_methods"]
    way["speculative_tokens"] = config.depth
    return told


def written_flat(
    config: BlockConfig, own: Mapping[str, Any], architecture: str, num_target_layers: int, dtype: torch.dtype
) -> dict[str, Any]:
    """In the flat layout, keys at the top and in the nested table. `own`: the kind's keys.

    Raises `CapabilityError` for what the layout cannot say.
    """
    if config.draft_vocab_size != config.layers.vocab_size:
        raise CapabilityError("the layout of z-lab has no draft vocabulary, and this network has one: take speculators")
    if config.target_hidden_size != config.layers.hidden_size:
        raise CapabilityError("the layout of z-lab knows no network of another width than its target's")
    if not config.layers.qk_norm:
        raise CapabilityError("the layers of z-lab have norms of queries and keys, and those of this network have none")
    sight: dict[str, bool] = {"is_causal": config.causal}
    if config.causal_windows and not config.causal:  # z-lab's default where there is no `is_causal`
        sight = {"sliding_window_non_causal": False}
    told = {**_common(config, dtype), FLAT_TAPS: [tap - 1 for tap in config.taps], **own}
    told["shift_label"] = config.from_anchor  # ModelOpt's word, and SpecForge's
    inner = {key: told[key] for key in told if key not in ("dtype", "tie_word_embeddings")}
    return {
        "architectures": [architecture],
        **_shape(config),
        **told,
        **sight,
        **_norms(config),
        "num_target_layers": num_target_layers,
        "has_embed_tokens": config.own_embedding,
        "has_lm_head": config.own_head,
        NESTED: {**inner, **_parts(config)},
    }


def _common(config: BlockConfig, dtype: torch.dtype) -> dict[str, Any]:
    return {
        "block_size": config.block_size,
        "mask_token_id": config.mask_token_id,
        "sample_from_anchor": config.from_anchor,
        "dtype": str(dtype).removeprefix("torch."),
        "tie_word_embeddings": False,
    }


def _parts(config: BlockConfig) -> dict[str, float | bool]:
    """Those that change something: a library may refuse keys that it does not know."""
    told = {"input_embedding_scale": config.embedding_scale, "output_multiplier": config.output_multiplier}
    told |= {VALUES: config.value_scale}
    may = {"final_logit_softcapping": config.logit_cap, RUNTIME: config.runtime_block_size}
    set_ = {key: value for key, value in may.items() if value is not None}
    return {key: value for key, value in told.items() if value != 1} | set_ | ({SINKS: True} if config.sinks else {})


def _norms(config: BlockConfig) -> dict[str, bool]:
    """At the top in either layout."""
    return {NORMS: True} if config.norm_offset else {}


def _shape(config: BlockConfig) -> dict[str, Any]:
    """Of the layers, windows among them, in whatever keys."""
    layers, kind = config.layers, ARCHITECTURES[config.layers.architecture]
    shape: dict[str, Any] = {"model_type": kind.model_type, **kind.write(layers)}
    scaling: Any = shape.get("rope_scaling") or {"rope_type": "default"}
    window = next((one for one in layers.windows if one is not None), None)
    return {
        **shape,
        "rope_parameters": {**scaling, "rope_theta": shape["rope_theta"]},
        "layer_types": kinds_of(layers),
        "use_sliding_window": window is not None,
        "sliding_window": window,
    }

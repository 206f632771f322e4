"""Directories of block networks: what config.json says of them, in both spellings, and which tensor is which.

    speculators   transformer_layer_config, block_size, ... at the top; taps "after n layers"   (ours, too)
    z-lab         a flat Qwen3's config.json with `dflash_config`; taps n - 1 for "after n layers"

Kinds are told apart by keys and tensors, never by the name of an architecture. A directory that says both must say the
same in both. Data in: a directory; data out: the sizes, canonical tensor names, and what a head's kind reads itself.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from outdraft.drafters.shared.blocks.config import BlockConfig
from outdraft.drafters.shared.learning.vocab import read_vocab
from outdraft.models.families.catalogue import ARCHITECTURES
from outdraft.models.families.shared.naming import Entry, linear
from outdraft.models.files.foreign_heads import speculators_config
from outdraft.models.files.load import find_architecture, read_json
from outdraft.options.errors import ModelLoadError
from outdraft.options.shown import shown
from outdraft.weights.renamed import NamedTensors, open_tensors
from outdraft.weights.source import TensorSource

NESTED = "dflash_config"
TAPS, FLAT_TAPS = "aux_hidden_state_layer_ids", "target_layer_ids"
BESIDE = ("d2t", "t2d", "embed_tokens.weight")


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockFiles:
    """A directory, understood."""

    config: BlockConfig
    tensors: TensorSource  # canonical names, without "model."
    vocab: Tensor | None  # [V'] the target's ids of the draft's tokens; None: all
    said: Mapping[str, Any]  # all keys, those of the nested table beside those at the top


def said_in(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Keys at the top, and those of the nested table, which are more exact."""
    table = raw.get(NESTED)
    return {**raw, **(table if isinstance(table, dict) else {})}


def read_blocks(directory: Path, target_hidden_size: int) -> BlockFiles:
    """A block network in either spelling. Raises `ModelLoadError` for what is none, or contradicts itself."""
    raw = read_json(directory / "config.json")
    said = said_in(raw)
    whole = raw.get("transformer_layer_config")
    layers = dict(whole) if isinstance(whole, dict) else {key: raw[key] for key in raw if key != NESTED}
    if "block_size" not in said or "mask_token_id" not in said:
        lacking = "block_size" if "block_size" not in said else "mask_token_id"
        raise ModelLoadError(f"{directory} holds no block network: its config.json names no {lacking}")
    tensors = open_tensors(directory)
    tensors = NamedTensors(tensors, {name.removeprefix("model."): name for name in tensors})
    layers.setdefault("model_type", "qwen3" if "layers.0.self_attn.q_norm.weight" in tensors else "llama")
    kind = find_architecture(layers)
    if kind.model_type not in ("llama", "qwen3"):
        raise ModelLoadError(f"{directory}: layers of {kind.model_type!r} are not supported (supported: llama, qwen3)")
    shape = kind.read(layers, beside=tuple(raw))
    if any("attention_sink" in key and said[key] for key in said) or said.get("attention_value_scale", 1.0) != 1.0:
        raise ModelLoadError(f"{directory}: a block network with attention sinks or scaled values is not supported")
    if said.get("use_gemma_norm"):
        raise ModelLoadError(f"{directory}: a block network with norms of 1 + w is not supported")
    config = BlockConfig(
        layers=shape,
        taps=_taps(raw, said, directory),
        target_hidden_size=int(said.get("target_hidden_size") or target_hidden_size),
        block_size=whole_number(said, "block_size", directory, least=2),
        mask_token_id=whole_number(said, "mask_token_id", directory, least=0),
        from_anchor=bool(said.get("sample_from_anchor", False)),
        causal=bool(said.get("is_causal", False)),
        causal_windows=not said.get("sliding_window_non_causal", True),
        draft_vocab_size=int(said.get("draft_vocab_size") or shape.vocab_size),
        own_head="lm_head.weight" in tensors,
        own_embedding="embed_tokens.weight" in tensors,
        embedding_scale=float(said.get("input_embedding_scale") or 1.0),
        output_multiplier=float(said.get("output_multiplier") or 1.0),
        logit_cap=said.get("final_logit_softcapping"),
    )
    return BlockFiles(config=config, tensors=tensors, vocab=_vocab(config, tensors, directory), said=said)


def _taps(raw: Mapping[str, Any], said: Mapping[str, Any], directory: Path) -> tuple[int, ...]:
    """After so many layers."""
    found = {key: said[key] for key in (TAPS, FLAT_TAPS) if said.get(key) is not None}
    for key, listed in found.items():
        if not isinstance(listed, list) or not listed or not all(type(n) is int and 0 <= n < 1 << 20 for n in listed):
            raise ModelLoadError(f"{directory}: {key}={shown(listed)} of config.json is no list of layers")
    told = {tuple(n + (key == FLAT_TAPS) for n in listed) for key, listed in found.items()}
    if len(told) > 1:
        raise ModelLoadError(f"{directory}: {TAPS} and {FLAT_TAPS} of config.json name different taps: leave in one")
    if not told:
        raise ModelLoadError(f"{directory}: config.json names no taps: give {TAPS}, layers counted from 1")
    return told.pop()


def whole_number(said: Mapping[str, Any], key: str, directory: Path, *, least: int) -> int:
    """What config.json says under a key. Raises `ModelLoadError` where that is nothing, or no such number."""
    value = said.get(key)
    if type(value) is not int or not least <= value < 1 << 24:
        raise ModelLoadError(f"{directory}: {key}={shown(value)} of config.json must be a number of at least {least}")
    return value


def _vocab(config: BlockConfig, tensors: TensorSource, directory: Path) -> Tensor | None:
    if config.draft_vocab_size == config.layers.vocab_size:
        return None
    if "d2t" not in tensors:
        raise ModelLoadError(
            f"{directory}: a draft vocabulary of {config.draft_vocab_size} out of {config.layers.vocab_size} tokens, "
            "and no d2t that says which"
        )
    return read_vocab(tensors["d2t"], tensors.get("t2d"), config.layers.vocab_size, directory)


def entries_of(config: BlockConfig) -> Iterable[Entry]:
    """Which of our parameters each published tensor is."""
    layers, width = config.layers, config.layers.head_dim
    for name in ("fc", "hidden_norm", "norm"):
        yield Entry(ours=f"{name}.weight", theirs=(f"{name}.weight",))
    if config.own_head:
        yield Entry(ours="lm_head.weight", theirs=("lm_head.weight",))
    if config.own_embedding:
        yield Entry(ours="embedding", theirs=("embed_tokens.weight",))
    for i in range(layers.num_layers):
        ours, theirs = f"layers.{i}", f"layers.{i}"
        norms = {"attn_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm"}
        if layers.qk_norm:
            norms |= {"q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm"}
        for name, stored in norms.items():
            yield Entry(ours=f"{ours}.{name}.weight", theirs=(f"{theirs}.{stored}.weight",))
        heights = (layers.num_kv_heads * width,) * 2
        attention, inner = f"{theirs}.self_attn", (layers.intermediate_size,) * 2
        yield from linear(f"{ours}.q", [f"{attention}.q_proj"], layers.qkv_bias)
        yield from linear(
            f"{ours}.kv", [f"{attention}.k_proj", f"{attention}.v_proj"], layers.qkv_bias, heights=heights
        )
        yield from linear(f"{ours}.out", [f"{attention}.o_proj"], layers.out_bias)
        mlp = f"{theirs}.mlp"
        yield from linear(f"{ours}.mlp.up", [f"{mlp}.gate_proj", f"{mlp}.up_proj"], layers.mlp_bias, heights=inner)
        yield from linear(f"{ours}.mlp.down", [f"{mlp}.down_proj"], layers.mlp_bias)


def written(config: BlockConfig, model_type: str, architecture: str, dtype: torch.dtype) -> dict[str, Any]:
    """The config.json of a directory in speculators' layout, every key explicit, the taps in both spellings."""
    kind = ARCHITECTURES[config.layers.architecture]
    shape: dict[str, Any] = {"model_type": kind.model_type, **kind.write(config.layers)}
    scaling: Any = shape.get("rope_scaling") or {"rope_type": "default"}
    shape["rope_parameters"] = {**scaling, "rope_theta": shape["rope_theta"]}
    return {
        "architectures": [architecture],
        **speculators_config(model_type, None, []),
        "block_size": config.block_size,
        "mask_token_id": config.mask_token_id,
        "sample_from_anchor": config.from_anchor,
        "is_causal": config.causal,
        "sliding_window_non_causal": not config.causal_windows,
        TAPS: list(config.taps),
        "draft_vocab_size": config.draft_vocab_size,
        "target_hidden_size": config.target_hidden_size,
        "dtype": str(dtype).removeprefix("torch."),
        "tie_word_embeddings": False,
        "transformer_layer_config": shape,
    }

"""Directories of block networks, read: keys (`keys.py`), tensors under canonical names, and which part each of them is.

Kinds are told apart by keys and tensors, never by the name of an architecture. Data in: a directory; data out: the
sizes, the tensors, and what a head's kind reads itself.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from outdraft.drafters.shared.blocks.gguf import names_in, open_blocks
from outdraft.drafters.shared.blocks.keys import MASK, SINK_TENSOR, SLOT_MASKS, Absent, read_keys
from outdraft.drafters.shared.blocks.net import BlockConfig
from outdraft.drafters.shared.learning.vocab import find_vocab
from outdraft.models.families.shared.naming import Entry, linear, norm
from outdraft.models.files.foreign_heads import under_names
from outdraft.models.networks.port import TargetFacts
from outdraft.options.errors import ModelLoadError
from outdraft.options.shown import shown
from outdraft.weights.pickled import read_pickled_vector
from outdraft.weights.renamed import HeldTensors
from outdraft.weights.safetensors import read_tensors
from outdraft.weights.source import TensorSource

BESIDE = ("d2t", "t2d")  # tensors that are no parameters
_BACKBONE = ("fc.weight", "hidden_norm.weight", "norm.weight")
_BORROWED = ("verifier_lm_head.", "verifier_norm.")  # the target's own, which a trainer may save
_LAYER = re.compile(r"(?:layers|blk)\.(\d+)\.")
_OF_LAYERS = ("self_attn.", "mlp.", "input_layernorm.", "post_attention_layernorm.")


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockFiles:
    """A directory, understood."""

    config: BlockConfig
    tensors: TensorSource  # canonical names, without "model."
    vocab: Tensor | None  # [V'] the target's ids of the draft's tokens; None: all
    said: Mapping[str, Any]  # all keys, those of the nested table beside those at the top


def read_blocks(
    directory: Path, facts: TargetFacts, absent: Absent, own: Collection[str], also: Mapping[str, str]
) -> BlockFiles:
    """A block network in either layout. `own`: keys that its kind reads itself; `also`: names -> canonical ones.

    Raises `ModelLoadError` for what is none, or contradicts itself, `CapabilityError` for another target's.
    """
    raw, stored = open_blocks(directory, own)
    tensors = _tensors(stored, directory, also)
    config, said = read_keys(raw, tensors, facts, absent, own, directory)
    vocab = find_vocab(tensors, config.draft_vocab_size, config.layers.vocab_size, directory)
    return BlockFiles(config=config, tensors=tensors, vocab=vocab, said=said)


def own_tensors(directory: Path, also: Mapping[str, str]) -> frozenset[str] | None:
    """Of a block network, the tensors beside those of the backbone, by canonical names; None: there is none."""
    names = {_ours(name, also) for name in names_in(directory)}
    if not names.issuperset(_BACKBONE):
        return None
    beside = {*_BACKBONE, *BESIDE, MASK, "lm_head.weight", "embed_tokens.weight"}
    return frozenset(
        name
        for name in names - beside
        if not name.startswith(_BORROWED)
        and not (name.startswith("layers.") and name.split(".", 2)[-1].startswith(_OF_LAYERS))
    )


def _tensors(found: TensorSource, directory: Path, also: Mapping[str, str]) -> TensorSource:
    """Under canonical names, with a mask's embedding that lies in a file of its own."""
    tensors = under_names(found, lambda name: None if name.startswith(_BORROWED) else _ours(name, also))
    beside = (directory / f"{MASK}.safetensors", directory / f"{MASK}.pt")
    rows = [_mask_row(path) for path in beside if path.exists()]
    rows += [tensors[MASK].flatten()] if MASK in tensors else []
    if any(not torch.equal(row.float(), rows[0].float()) for row in rows[1:]):
        raise ModelLoadError(f"{directory} holds several rows for {MASK}, which differ: leave in one")
    return HeldTensors({**tensors, MASK: rows[0]}, directory) if rows and MASK not in tensors else tensors


def _mask_row(path: Path) -> Tensor:
    """The row in a file of its own. Raises `ModelLoadError` where it has another name there."""
    found = {MASK: read_pickled_vector(path, "embedding")} if path.suffix == ".pt" else read_tensors(path)
    if MASK not in found:
        raise ModelLoadError(f"{path} holds no tensor {MASK!r} but {shown(sorted(found))}: give it that name")
    return found[MASK].flatten()


def _ours(name: str, also: Mapping[str, str]) -> str:
    """The canonical name; `also` names what stands in a layer without the layer's number."""
    name = name.removeprefix("model.").removeprefix("logit_head.")  # the latter: SpecForge's, once
    layer = _LAYER.match(name)
    if layer is None:
        return also.get(name, name)
    part = name[layer.end() :]
    part = SINK_TENSOR if part == f"{SINK_TENSOR}.weight" else part  # llama.cpp's
    return f"layers.{layer[1]}.{also.get(part, part)}"


def entries_of(config: BlockConfig) -> Iterable[Entry]:
    """Which of our parameters each published tensor is."""
    layers, width = config.layers, config.layers.head_dim
    yield Entry(ours="fc.weight", theirs=("fc.weight",))
    for name in ("hidden_norm", "norm"):
        yield from norm(name, name, layers, offset=config.norm_offset)
    if config.own_head:
        yield Entry(ours="lm_head.weight", theirs=("lm_head.weight",))
    if config.own_embedding:
        yield Entry(ours="embedding", theirs=("embed_tokens.weight",))
    if config.own_mask or config.slot_masks:
        yield Entry(ours="mask", theirs=(SLOT_MASKS if config.slot_masks else MASK,))
    for i in range(layers.num_layers):
        layer = f"layers.{i}"
        norms = {"attn_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm"}
        if layers.qk_norm:
            norms |= {"q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm"}
        for name, stored in norms.items():
            yield from norm(f"{layer}.{name}", f"{layer}.{stored}", layers, offset=config.norm_offset)
        if config.sinks:
            yield Entry(ours=f"{layer}.sinks", theirs=(f"{layer}.{SINK_TENSOR}",))
        heights, inner = (layers.num_kv_heads * width,) * 2, (layers.intermediate_size,) * 2
        attention, mlp = f"{layer}.self_attn", f"{layer}.mlp"
        kv, up = [f"{attention}.k_proj", f"{attention}.v_proj"], [f"{mlp}.gate_proj", f"{mlp}.up_proj"]
        yield from linear(f"{layer}.q", [f"{attention}.q_proj"], layers.qkv_bias)
        yield from linear(f"{layer}.kv", kv, layers.qkv_bias, heights=heights)
        yield from linear(f"{layer}.out", [f"{attention}.o_proj"], layers.out_bias)
        yield from linear(f"{mlp}.up", up, layers.mlp_bias, heights=inner)
        yield from linear(f"{mlp}.down", [f"{mlp}.down_proj"], layers.mlp_bias)

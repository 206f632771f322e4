"""LiLiCorr: a block in one pass, and a network over the candidates of all slots that says which of them match.

NVIDIA, 2026, https://arxiv.org/abs/2608.20530. What is drafted with is the softmax over a slot's candidates, zero
elsewhere.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from outdraft.core.head_format import served_by_sglang
from outdraft.core.method import arxiv
from outdraft.drafters.lilicorr.net import CandidateChain, LilicorrSizes
from outdraft.drafters.shared.blocks.convolution import BlockConvolution, begin_convolutions, convolution_entries
from outdraft.drafters.shared.blocks.drafter import block_method
from outdraft.drafters.shared.blocks.keys import whole_number
from outdraft.drafters.shared.blocks.kind import BlockKind, BlockParts
from outdraft.drafters.shared.blocks.net import BlockConfig, BlockNet
from outdraft.models.families.shared.naming import Entry, linear
from outdraft.options.errors import CapabilityError, ModelLoadError
from outdraft.options.shown import shown
from outdraft.weights.source import TensorSource

MOST_LAYERS = 16
_CONVOLUTIONS = ("conv_kernel_size", "conv_group_size")  # absent where there are none
_REAL = ("lilicorr_mlp_ratio", "lilicorr_vector_eps", "lilicorr_logit_scale")
_STD = 0.02  # of the first weights of what factors are made by
_FACTORS = {"leaving": "out_head", "entering": "in_head", "starting": "anchor_out_head"}
_LINEAR = {
    "state": "pass_hidden_proj",
    "context": "context_proj",
    "feature_norm": "feature_norm",
    "feature_down": "feature_mlp.down_proj",
    "mix": "factor_input_proj",
    **_FACTORS,
}
_SINGLE = {
    "feature_weight": "feature_mlp.up_proj.weight",
    "feature_bias": "feature_mlp.up_proj.bias",
    "slot_embedding": "slot_embedding",
    "rank_embedding": "rank_embedding",
    "slot_bias": "relative_slot_bias",
    "same_bias": "same_slot_bias",
    "norm.weight": "output_norm.weight",
    "context_norm.weight": "anchor_norm.weight",
}
_EMBEDDINGS = ("slot_embedding", "rank_embedding", "slot_bias", "same_bias")  # zero at first


def _read(said: Mapping[str, Any], tensors: TensorSource, directory: Path) -> LilicorrSizes:
    """Every key of the head must be there."""
    if said.get("lilicorr_enabled") is False:
        raise ModelLoadError(f"{directory}: lilicorr_enabled=False of config.json, and its files hold the head")
    told, numbers = {**dict.fromkeys(_CONVOLUTIONS, 0), **said}, asdict(LilicorrSizes())
    for key in numbers:
        least = int(key not in (*_CONVOLUTIONS, "lilicorr_hidden_size"))
        is_real = key in _REAL
        numbers[key] = _positive(told, key, directory) if is_real else whole_number(told, key, directory, least=least)
    own = LilicorrSizes(**numbers)
    if bool(own.conv_kernel_size) != bool(own.conv_group_size):
        raise ModelLoadError(f"{directory}: config.json gives one of conv_kernel_size and conv_group_size: give both")
    if own.lilicorr_num_layers > MOST_LAYERS:
        raise ModelLoadError(
            f"{directory}: lilicorr_num_layers={own.lilicorr_num_layers} of config.json: at most {MOST_LAYERS}"
        )
    return own


def _positive(said: Mapping[str, Any], key: str, directory: Path) -> float:
    value = said.get(key)
    if type(value) not in (int, float) or value is None or not 0 < value < 1e6:
        raise ModelLoadError(f"{directory}: {key}={shown(value)} of config.json must be a number above 0")
    return float(value)


def _parts(config: BlockConfig, own: LilicorrSizes, dtype: torch.dtype, device: torch.device) -> BlockParts:
    """Raises `CapabilityError` for a backbone that the head does not stand behind."""
    width, groups = config.layers.hidden_size, own.conv_group_size
    heads, nodes = own.lilicorr_num_heads, own.lilicorr_hidden_size or width
    if config.from_anchor:
        raise CapabilityError("LiLiCorr scores slots behind the anchor's, and here that one guesses (from_anchor) too")
    if config.draft_vocab_size != config.layers.vocab_size or config.target_hidden_size != width:
        raise CapabilityError(
            "LiLiCorr reads embeddings of the target: it drafts the whole vocabulary, as wide as that"
        )
    if nodes % heads:
        raise CapabilityError(f"lilicorr_hidden_size={nodes} is no multiple of lilicorr_num_heads={heads}")
    correction = CandidateChain(config, own, dtype, device)
    if not groups:
        return BlockParts(correction=correction)
    return BlockParts(
        convolution=lambda: BlockConvolution(width, own.conv_kernel_size, groups, dtype, device), correction=correction
    )


def _entries(config: BlockConfig, own: LilicorrSizes) -> Iterable[Entry]:
    """As SGLang spells the tensors."""
    if own.conv_group_size:
        yield from convolution_entries(config)
    maps = dict(_LINEAR)
    if own.lilicorr_hidden_size not in (0, config.layers.hidden_size):
        maps["token"] = "token_proj"
    for ours, theirs in maps.items():
        yield from linear(f"correction.{ours}", [f"lilicorr.{theirs}"], True)
    for ours, theirs in _SINGLE.items():
        yield Entry(ours=f"correction.{ours}", theirs=(f"lilicorr.{theirs}",))
    for i in range(own.lilicorr_num_layers):
        ours, theirs = f"correction.layers.{i}", f"lilicorr.layers.{i}"
        for name in ("attn_norm", "mlp_norm"):
            yield Entry(ours=f"{ours}.{name}.weight", theirs=(f"{theirs}.{name}.weight",))
        for part in ("weight", "bias"):
            yield Entry(ours=f"{ours}.qkv.{part}", theirs=(f"{theirs}.attn.in_proj_{part}",))
        for name, stored in (("out", "attn.out_proj"), ("up", "mlp.up_proj"), ("down", "mlp.down_proj")):
            yield from linear(f"{ours}.{name}", [f"{theirs}.{stored}"], True)


def _also() -> dict[str, str]:
    """ModelOpt's names of the tensors -> SGLang's."""
    places = {"feature_mlp.0": "feature_norm", "feature_mlp.1": "feature_mlp.up_proj"}
    places["feature_mlp.3"] = "feature_mlp.down_proj"
    for i in range(MOST_LAYERS):
        places |= {f"layers.{i}.mlp.0": f"layers.{i}.mlp.up_proj", f"layers.{i}.mlp.2": f"layers.{i}.mlp.down_proj"}
    return {
        f"lilicorr.{theirs}.{part}": f"lilicorr.{ours}.{part}"
        for theirs, ours in places.items()
        for part in ("weight", "bias")
    }


@torch.no_grad()
def _begin(net: BlockNet) -> None:
    """Convolutions change nothing at first, and all candidates match nearly alike."""
    begin_convolutions(net)
    chain = net.correction
    assert isinstance(chain, CandidateChain)
    for name in (*_EMBEDDINGS, "feature_bias"):
        chain.get_parameter(name).zero_()
    for name in _FACTORS:
        weight = chain.get_parameter(f"{name}.weight")
        weight.mul_(_STD / weight.std())


KIND: BlockKind[LilicorrSizes] = BlockKind(
    name="lilicorr",
    architecture="LiLiCorrDraftModel",
    flat_architecture="LiLiCorrDraftModel",
    read=_read,
    write=lambda own: {
        "projector_type": "lilicorr",
        "lilicorr_enabled": True,
        **{key: value for key, value in asdict(own).items() if value or key not in _CONVOLUTIONS},
    },
    keys=(*asdict(LilicorrSizes()), "lilicorr_enabled"),
    mark="lilicorr.context_proj.weight",
    also=_also(),
    served_flat={"sglang": served_by_sglang("DFLASH")},
    parts=_parts,
    entries=_entries,
    begin=_begin,
)

METHOD = block_method(
    KIND,
    also_called=("dflash",),
    summary="a block of tokens in one pass, and a network over its slots' candidates that links one of each",
    paper=arxiv("2608.20530", "LiLiCorr"),
)

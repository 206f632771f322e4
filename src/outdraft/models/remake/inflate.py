"""Make a bigger model that computes exactly the same distribution, so that speed can be measured on a target of any
cost.

    width k   every channel, head and feed-forward unit k times; what reads them divides by k, so that norms, rotary
              positions and grouped heads see what they saw (a tied head: the final norm divides instead)
    depth n   identity layers spread among the real ones, until n: random weights of their own, whose outputs read one
              copy of their input with the opposite sign of the next, so that nothing is added (width 1: zeros)
A power of two as width keeps even the rounding of the weights. No two layers share a matrix, because some programs keep
equal matrices once and would then read less than a real model of that size.
Data in and out: Hugging Face model directories.
"""

import shutil
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from outdraft.models.files.load import load_model, save_model
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.config import ModelConfig, refuse_other_parts
from outdraft.options.errors import ConfigError
from outdraft.weights.text_files import copy_text_files

_FILLER = 2.0**-6  # standard deviation of an identity layer's weights before they are divided among the copies


def inflate(model_dir: str | Path, out_dir: str | Path, *, width: int = 1, depth: int | None = None) -> None:
    """Write the bigger model to `out_dir`, with the tokenizer and other small files of `model_dir` beside it.

    Its companions.json stays behind: the paths in it are relative, and heads of the small model do not fit the big one.
    """
    decoder = load_model(model_dir)
    save_model(inflate_decoder(decoder, width=width, depth=depth), out_dir)
    for path in Path(model_dir).iterdir():
        if path.is_file() and not path.name.startswith(("model", "config.json", "companions.json")):
            shutil.copyfile(path, Path(out_dir) / path.name)
    copy_text_files(Path(model_dir), Path(out_dir))  # those in folders too


@torch.no_grad()
def inflate_decoder(decoder: Decoder, *, width: int = 1, depth: int | None = None) -> Decoder:
    """The same distribution from `width` times the channels and `depth` layers."""
    config = decoder.config
    refuse_other_parts(config, "inflate")
    depth = config.num_layers if depth is None else depth
    if config.quant is not None:
        raise ConfigError(f"inflate: the model is quantized ({config.variant}): inflate the original, then quantize")
    if width < 1 or depth < config.num_layers:
        raise ConfigError(
            f"inflate: width={width}, depth={depth}, but width must be at least 1 and depth at least the model's "
            f"{config.num_layers} layers"
        )
    origin = spread(config.num_layers, depth)
    big = Decoder(_bigger(config, width, origin), decoder.embedding.dtype, decoder.embedding.device)
    source = dict(decoder.named_parameters(remove_duplicate=False))
    rng = torch.Generator(decoder.embedding.device).manual_seed(0)
    for name, parameter in big.named_parameters():
        real = True
        small = name
        if name.startswith("layers."):
            _, index, rest = name.split(".", 2)
            layer, real = origin[int(index)]
            small = f"layers.{layer}.{rest}"
        weight = source[small]
        if real or "norm" in small:
            parameter.copy_(_widen(small, weight, config, width))
            continue
        other = torch.empty_like(weight, dtype=torch.float32).normal_(std=_FILLER, generator=rng).to(weight.dtype)
        if small.split(".")[-2] in ("out", "down"):
            parameter.copy_(_cancel(other, width))
        else:
            parameter.copy_(_widen(small, other, config, width))
    return big.eval().requires_grad_(False)


def spread(num_layers: int, depth: int) -> list[tuple[int, bool]]:
    """For each of `depth` layers the small model's layer that it copies, and whether it does real work."""
    plan: list[tuple[int, bool]] = []
    for place in range(depth):
        layer = place * num_layers // depth
        plan.append((layer, place == 0 or plan[-1][0] != layer))
    return plan


def _cancel(small: Tensor, width: int) -> Tensor:
    """Read the copies of the input with signs that add up to nothing: [out, in] -> [out * width, in * width]."""
    if small.dim() == 1:
        return torch.zeros_like(small).repeat(width)
    nothing = torch.zeros_like(small)
    signed = [small, -small] * (width // 2) + [nothing] * (width % 2)
    return torch.cat(signed, dim=1).repeat(width, 1)


def _bigger(config: ModelConfig, width: int, origin: list[tuple[int, bool]]) -> ModelConfig:
    return replace(
        config.of_layers([layer for layer, _ in origin]),
        hidden_size=config.hidden_size * width,
        num_heads=config.num_heads * width,
        num_kv_heads=config.num_kv_heads * width,
        intermediate_size=config.intermediate_size * width,
    )


def _widen(name: str, small: Tensor, config: ModelConfig, width: int) -> Tensor:
    """One parameter of the wide model."""
    kind = name.split(".")[-2] if "." in name else name
    if kind in ("q_norm", "k_norm") and not config.qk_norm_whole:  # over one head, whose width stays
        return small
    if kind in ("embedding", "positions"):
        return small.repeat(1, width)
    if kind == "final_norm" and config.tie_embeddings:
        return small.repeat(width) / width
    if small.dim() == 1 and kind not in ("qkv", "up"):
        return small.repeat(width)
    if small.dim() == 2:
        small = small.repeat(1, width) / width  # it reads `width` copies of its input
    if kind == "lm_head":  # the vocabulary stays
        return small
    heights = {  # of fused parts, each of which is multiplied for itself
        "qkv": [heads * config.head_dim for heads in (config.num_heads, config.num_kv_heads, config.num_kv_heads)],
        "up": [config.intermediate_size] * (2 if config.gated_mlp else 1),
    }
    parts = torch.split(small, heights.get(kind, [len(small)]))
    return torch.cat([part.repeat(width, *[1] * (small.dim() - 1)) for part in parts])

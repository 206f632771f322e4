"""A decoder to the same decoder on small integers: every linear map that the `QuantConfig` covers is rounded.

Rounding to nearest needs nothing but the weights. Data in: a decoder, which stays as it is; data out: a new one.
"""

from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase

import torch
from torch import nn

from outdraft.models.families.shared.naming import LINEAR_MAPS
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.config import ModelConfig, refuse_other_parts
from outdraft.nn.linear import Linear
from outdraft.nn.quant.config import QuantConfig
from outdraft.nn.quant.linear import QuantLinear
from outdraft.options.errors import ConfigError
from outdraft.options.near_miss import near_miss

Tell = Callable[[int, int], object]  # (maps done, maps in all)


def mixed_precision(num_layers: int) -> QuantConfig:
    """4 bits in the middle; the first and the last layer and the head stay as they are."""
    if num_layers < 3:
        raise ConfigError(f"mixed precision needs a layer between the first and the last; the model has {num_layers}")
    return QuantConfig(keep=("layers.0.*", f"layers.{num_layers - 1}.*", "lm_head"))


def linear_names(num_layers: int) -> list[str]:
    """Our names of a decoder's linear maps, in the order in which a pass meets them."""
    return [f"layers.{i}.{part}" for i in range(num_layers) for part in LINEAR_MAPS] + ["lm_head"]


def quantize_decoder(decoder: Decoder, config: QuantConfig, progress: Tell = lambda done, count: None) -> Decoder:
    """A copy of `decoder` on the grid of `config`, ready to run; what is kept shares its memory with the original.

    Raises:
        ConfigError: the decoder is rounded already, `keep` or `layer_bits` names no layer, a group does not divide one.
    """
    shell = round_decoder(decoder, config, progress)
    shell.set_exact(decoder.exact)
    return shell


@torch.no_grad()
def round_decoder(decoder: Decoder, config: QuantConfig, progress: Tell = lambda done, count: None) -> Decoder:
    """The same, not yet prepared for inference."""
    shell = quantized_shell(decoder, config)
    round_maps(shell, decoder, progress)
    return shell


def quantized_shell(decoder: Decoder, config: QuantConfig) -> Decoder:
    """The new decoder with all that is not rounded in place, and scales still NaN."""
    require_roundable(decoder.config, config)
    weight = decoder.embedding
    shell = Decoder(replace(decoder.config, quant=config, variant=config.variant), weight.dtype, weight.device)
    share_parameters(shell, decoder)
    return shell.eval().requires_grad_(False)


def share_parameters(shell: nn.Module, source: nn.Module) -> None:
    """Let a decoder, or a part of one, hold the parameters of the same before it is rounded."""
    theirs = dict(source.named_parameters(remove_duplicate=False))
    for name, parameter in shell.named_parameters(remove_duplicate=False):
        parameter.data = theirs[name].data


@torch.no_grad()
def round_maps(shell: nn.Module, source: nn.Module, progress: Tell = lambda done, count: None) -> None:
    """Take the nearest integers to every linear map of `source` that is on integers in `shell`."""
    rounded = [(name, part) for name, part in shell.named_modules() if isinstance(part, QuantLinear)]
    for done, (name, part) in enumerate(rounded):
        progress(done, len(rounded))
        linear = source.get_submodule(name)
        assert isinstance(linear, Linear)
        part.round(linear.weight)
    progress(len(rounded), len(rounded))


def require_roundable(model: ModelConfig, config: QuantConfig) -> None:
    """Raise `ConfigError` for a model that is rounded already, names of no layer, or nothing that is left to round."""
    if model.variant:
        raise ConfigError(f"the model is rounded already ({model.variant}): quantize the original")
    refuse_other_parts(model, "rounding")
    known = linear_names(model.num_layers)
    asked = [("keep", pattern) for pattern in config.keep] + [
        ("layer_bits", pattern) for pattern, _ in config.layer_bits
    ]
    for option, pattern in asked:
        if not any(fnmatchcase(name, pattern) for name in known):
            raise ConfigError(
                f"{option}={pattern!r} names no linear map{near_miss(pattern, known)}: "
                "they are lm_head and layers.N.qkv, .out, .up and .down; * stands for anything"
            )
    if not any(config.covers(name) for name in known):
        raise ConfigError(f"keep={config.keep!r} leaves no linear map to round: keep fewer")


def quantized_names(decoder: Decoder) -> list[str]:
    """The linear maps that are on small integers, in the order of a pass."""
    names = linear_names(decoder.config.num_layers)
    return [name for name in names if isinstance(decoder.get_submodule(name), QuantLinear)]

"""Round a draft model's weights to 8 or 4 bits when it is loaded. Its text is only a guess, so no distribution
changes.

"auto": bytes in groups of 32, where the native kernels run the draft and its files hold unrounded weights. A step took
less time there for hardly fewer tokens a pass, at 1.6 and at 28 million parameters; 4 bits take less again and cost
some of the tokens (docs/quantization.md). On a CPU rounding through PyTorch saves nothing, and
on CUDA a rounded draft is not measured: there one is rounded only where that is asked for.
"""

import torch
from torch import nn

from outdraft.models.networks.config import ModelConfig
from outdraft.models.target.open_network import Rounding
from outdraft.nn.linear import Linear
from outdraft.nn.quant.config import QuantConfig
from outdraft.nn.quant.linear import QuantLinear
from outdraft.options.base import Quantization
from outdraft.options.errors import ConfigError, ModelLoadError

LARGEST = 65504.0  # the largest float16, in which scales are stored; a scale is smaller than its largest weight

_GRIDS = {
    "int8": QuantConfig(bits=8, keep=()),
    # a head on 4 bits costs most of the tokens lost
    "int4": QuantConfig(bits=4, keep=(), layer_bits=(("lm_head", 8),)),
}


@torch.no_grad()
def round_linears(module: nn.Module, config: QuantConfig, *, asked: bool = True) -> None:
    """Put integers in place of every linear map of the module that the rounding covers.

    Raises `ConfigError` naming a map whose inputs do not come in groups; where none `asked` for it, such a map stays.
    """
    for path, linear in list(module.named_modules()):
        if not isinstance(linear, Linear) or not config.covers(path):
            continue
        if count := config.group_size and linear.shape[1] % config.group_size:
            if not asked:
                continue
            raise ConfigError(
                f"quantization: the {linear.shape[1]} inputs of {path} leave {count} behind groups of "
                f"{config.group_size}: take 'auto', which leaves such maps as they are, or 'none'"
            )
        parent, _, name = path.rpartition(".")
        setattr(module.get_submodule(parent), name, rounded(linear, config, path))


@torch.no_grad()
def rounded(linear: Linear, config: QuantConfig, name: str) -> QuantLinear:
    """The nearest map of integers to this one, called `name`. Raises `ModelLoadError` for weights that have none."""
    num_out, num_in = linear.shape
    largest = float(linear.weight.detach().abs().max())
    if not largest <= LARGEST:  # or no number
        raise ModelLoadError(
            f"{name} holds a weight of {largest:g}, which cannot be rounded to {config.bits_at(name)} bits: its file "
            "is damaged, or needs quantization='none'"
        )
    bias = linear.bias
    small = QuantLinear(
        num_in,
        num_out,
        bias is not None,
        linear.dtype,
        linear.device,
        bits=config.bits_at(name),
        group_size=config.group_size,
        name=name,
    )
    small.round(linear.weight)
    if bias is not None and small.bias is not None:
        small.bias.copy_(bias)
    return small.requires_grad_(False)


def is_ours(config: QuantConfig | None) -> bool:
    """Whether this very rounding was chosen here, not read from the model's files."""
    return any(config is grid for grid in _GRIDS.values())


def grid_of(quantization: str, *, auto: Quantization) -> QuantConfig | None:
    """The rounding of this name; "auto" is that of the name `auto`. None: nothing is rounded."""
    return _GRIDS.get(auto if quantization == "auto" else quantization)


def rounding_of(quantization: str) -> Rounding:
    """What to round of the draft model that was read."""

    def choose(config: ModelConfig, native: bool) -> QuantConfig | None:
        if quantization != "auto":
            return _GRIDS.get(quantization)
        return _GRIDS["int8"] if native and not config.variant else None

    return choose

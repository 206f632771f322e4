"""What a draft model's weights are rounded to when it is loaded. Its text is only a guess, so no distribution changes.

"auto": bytes in groups of 32, where the native kernels run the draft and its files hold unrounded weights. A step took
less time there for hardly fewer tokens a pass, at 1.6 and at 28 million parameters; 4 bits take less again and cost
some of the tokens (docs/quantization.md). Through PyTorch rounding saves nothing.
"""

from outdraft.models.base import Decoder
from outdraft.models.load import Rounding
from outdraft.models.native import can_pack
from outdraft.nn.quant.config import QuantConfig

_GRIDS = {
    "int8": QuantConfig(bits=8, keep=()),
    "int4": QuantConfig(
        bits=4, keep=(), layer_bits=(("lm_head", 8),)
    ),  # a head on 4 bits costs most of the tokens lost
}


def is_ours(config: QuantConfig | None) -> bool:
    """Whether this very rounding was chosen here, not read from the model's files."""
    return any(config is grid for grid in _GRIDS.values())


def rounding_of(quantization: str) -> Rounding:
    """What to round of the draft model that was read."""

    def choose(decoder: Decoder) -> QuantConfig | None:
        if quantization != "auto":
            return _GRIDS.get(quantization)
        pays = can_pack(decoder.config, decoder.dtype, decoder.device) and not decoder.config.variant
        return _GRIDS["int8"] if pays else None

    return choose

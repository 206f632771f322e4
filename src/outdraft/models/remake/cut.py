"""A smaller decoder made of some of another's layers, with its embeddings, final norm and head.

The draft of "one third of the layers": the first, every third after it, and the last. Shapes are the target's; weights
are copies, so that training the one leaves the other alone.
"""

from collections.abc import Sequence

import torch

from outdraft.models.networks.base import Decoder
from outdraft.options.errors import ConfigError


def every_third(num_layers: int) -> tuple[int, ...]:
    """0, 3, 6, ... and the last."""
    return tuple(sorted({*range(0, num_layers, 3), num_layers - 1}))


@torch.no_grad()
def cut_decoder(decoder: Decoder, layers: Sequence[int], dtype: torch.dtype | None = None) -> Decoder:
    """A decoder of these layers, in this order. Raises `ConfigError` for layers that are not there, or not in order."""
    count = decoder.config.num_layers
    if not layers or list(layers) != sorted(set(layers)) or not 0 <= layers[0] <= layers[-1] < count:
        raise ConfigError(
            f"layers={tuple(layers)}: name some of the target's {count} layers, 0 to {count - 1}, in order"
        )
    if decoder.config.quant is not None:
        raise ConfigError(
            f"a draft cannot be cut from rounded weights ({decoder.config.variant}): cut it from the original model"
        )
    config = decoder.config.of_layers(layers)
    small = Decoder(config, dtype or decoder.dtype, decoder.device)
    own = dict(decoder.named_parameters())
    for name, parameter in small.named_parameters():
        parts = name.split(".")
        if parts[0] == "layers":
            parts[1] = str(layers[int(parts[1])])
        parameter.copy_(own[".".join(parts)])
    return small

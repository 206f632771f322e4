"""A model's files to a network that decodes: on the native kernels where they know the model, else through PyTorch."""

import logging
from collections.abc import Callable
from pathlib import Path

import torch

from outdraft.kernels.library import wanted_kind
from outdraft.models.config import ModelConfig
from outdraft.models.load import fill_decoder, open_weights, require_device
from outdraft.models.native import can_pack, find_unknown
from outdraft.models.native_files import load_native
from outdraft.models.network import Network
from outdraft.models.pieces import Pieces
from outdraft.models.quantize import round_decoder
from outdraft.nn.quant.config import QuantConfig

Rounding = Callable[[ModelConfig, bool], QuantConfig | None]  # (the model, do the kernels compute it) -> what to round

_log = logging.getLogger(__name__)


def load_network(
    path: str | Path,
    dtype: str | torch.dtype | None = None,
    device: str = "cpu",
    *,
    exact: bool = True,
    rounding: Rounding = lambda config, native: None,
) -> Network:
    """The model in directory or GGUF file `path` (or of that Hugging Face name), for decoding only.

    exact: no row's bits depend on the rows beside it (the native kernels' never do).
    rounding: what to round of the model that was read; None: nothing.
    """
    place = require_device(device)
    stored = open_weights(path, dtype)
    native = can_pack(stored.config, stored.dtype, place)
    quant = rounding(stored.config, native)
    if native:
        return load_native(Pieces(stored=stored, rounding=quant))
    unknown = find_unknown(stored.config)
    if unknown is not None and stored.dtype == torch.bfloat16 and place.type == "cpu" and wanted_kind():
        _log.warning(
            "%s runs through PyTorch, more slowly: the native kernels do not know %s",
            stored.config.architecture,
            unknown,
        )
    decoder = fill_decoder(stored, place)
    if quant is not None:
        decoder = round_decoder(decoder, quant)
    decoder.set_exact(exact)
    return decoder

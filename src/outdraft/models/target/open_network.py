"""A model's files to a network that decodes: on the native kernels where they know the model, else through PyTorch; a
model that outdraft does not compute itself through `transformers`."""

import logging
from collections.abc import Callable
from pathlib import Path

import torch

from outdraft.kernels.library import wanted_kind
from outdraft.models.adapter.choose import is_adapted
from outdraft.models.adapter.load import load_adapted
from outdraft.models.families.catalogue import ARCHITECTURES
from outdraft.models.files.half import in_kernels_type
from outdraft.models.files.load import fill_decoder, open_weights
from outdraft.models.networks.config import ModelConfig
from outdraft.models.networks.device import choose_device
from outdraft.models.networks.native import can_pack, find_unknown
from outdraft.models.networks.network import Network
from outdraft.models.remake.native_files import load_native
from outdraft.models.remake.pieces import Pieces
from outdraft.models.remake.quantize import round_decoder
from outdraft.nn.quant.config import QuantConfig
from outdraft.options.checked import check_value
from outdraft.options.errors import CapabilityError, ModelLoadError
from outdraft.weights.hub import resolve

Rounding = Callable[[ModelConfig, bool], QuantConfig | None]  # (the model, do the kernels compute it) -> what to round

_log = logging.getLogger(__name__)


def load_network(
    path: str | Path,
    dtype: str | torch.dtype | None = None,
    device: str = "cpu",
    *,
    exact: bool = True,
    rounding: Rounding = lambda config, native: None,
    model_impl: str = "auto",
) -> Network:
    """The model in directory or GGUF file `path` (or of that Hugging Face name), for decoding only.

    exact: no row's bits depend on the rows beside it (the native kernels' never do).
    rounding: what to round of the model that was read; None: nothing.
    model_impl: "auto", "outdraft" or "transformers" (`models/adapter/choose.py`).
    """
    place = choose_device(device)
    directory = resolve(str(check_value("model", path, str | Path, error=ModelLoadError)))
    if is_adapted(directory, model_impl):
        return _load_adapted(directory, dtype, place, exact, rounding)
    stored = in_kernels_type(open_weights(path, dtype), dtype, place)
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


def _load_adapted(
    path: Path, dtype: str | torch.dtype | None, place: torch.device, exact: bool, rounding: Rounding
) -> Network:
    """By transformers' own code, which nothing is rounded in."""
    network = load_adapted(path, dtype, place, exact=exact)
    if rounding(network.config, False) is not None:
        raise CapabilityError(
            f"{path.name} runs through transformers, where outdraft rounds no weights: leave the rounding (precision, "
            "quantization) out"
        )
    _log.warning(
        "%s runs through transformers, more slowly than outdraft's own models: %s",
        network.config.architecture,
        "outdraft does not compute this architecture itself"
        if network.config.architecture not in ARCHITECTURES
        else "model_impl='transformers'",
    )
    return network

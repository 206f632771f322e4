"""A model's files to a network that decodes, in two steps:

    name -> `open_model` -> `OpenedModel`     what the files say, and who computes it; no weight is read
         -> `read_network` -> `Network`       on the native kernels, through PyTorch, or through `transformers`

The native kernels compute the models that they know, PyTorch the others of ours, `transformers` the rest.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from outdraft.kernels.library import wanted_kind
from outdraft.models.adapter.load import load_adapted
from outdraft.models.families.catalogue import ARCHITECTURES
from outdraft.models.files.borrowed import TargetTables
from outdraft.models.files.half import in_kernels_type
from outdraft.models.files.load import StoredWeights, fill_decoder, open_weights, read_json
from outdraft.models.files.peft_adapter import refuse_lone_adapter
from outdraft.models.files.wrapper import text_kind
from outdraft.models.networks.config import ModelConfig
from outdraft.models.networks.device import choose_device
from outdraft.models.networks.native import can_pack, find_unknown
from outdraft.models.networks.network import Network
from outdraft.models.remake import packed_cache
from outdraft.models.remake.native_files import load_native
from outdraft.models.remake.pieces import Pieces
from outdraft.models.remake.quantize import round_decoder
from outdraft.nn.quant.config import QuantConfig
from outdraft.options.errors import CapabilityError, ConfigError
from outdraft.options.near_miss import near_miss
from outdraft.options.shown import shown
from outdraft.weights.gguf_files import part_paths
from outdraft.weights.hub import resolve

Rounding = Callable[[ModelConfig, bool], QuantConfig | None]  # (the model, do the kernels compute it) -> what to round

MODEL_IMPLS = ("auto", "outdraft", "transformers")  # vLLM's words for which library computes the layers
DEFAULT_BOUND = {torch.float32: 1e-3}  # 30 times the largest change seen; the other types change too much to guard
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedModel:
    """What a model's files say. None of its weights is read."""

    path: Path  # a directory, or a GGUF file
    dtype: str | torch.dtype | None  # as it was asked for
    device: torch.device
    stored: StoredWeights | None  # None: `transformers` computes it, and reads the directory itself
    pieces: Pieces | None  # of what the native kernels compute; None: they do not


def open_model(
    path: Path,
    dtype: str | torch.dtype | None,
    device: torch.device,
    *,
    model_impl: str = "auto",
    streams: bool = False,
    tables: TargetTables | None = None,
) -> OpenedModel:
    """The model in directory or GGUF file `path`.

    model_impl: "auto", "outdraft" or "transformers" (docs/models.md).
    streams: its weights will be read from disk in every pass, as the native kernels alone can.
    tables: of its target, for a draft that borrows some.
    """
    check_model_impl(model_impl, streams=streams)
    if not streams and is_adapted(path, model_impl):
        return OpenedModel(path=path, dtype=dtype, device=device, stored=None, pieces=None)
    stored = open_weights(path, dtype, tables, blocks=True)
    if stored.dtype == torch.float16:
        stored = in_kernels_type(stored, dtype, device)
    is_native = streams or can_pack(stored.config, stored.dtype, device)
    pieces = Pieces(stored=stored) if is_native else None
    return OpenedModel(path=path, dtype=dtype, device=device, stored=stored, pieces=pieces)


def load_network(
    path: str | Path,
    dtype: str | torch.dtype | None = None,
    device: str = "cpu",
    *,
    exact: bool = True,
    rounding: Rounding | None = None,
    model_impl: str = "auto",
    tables: TargetTables | None = None,
) -> Network:
    """Both steps at once, for a model in `path` or of that Hugging Face name."""
    opened = open_model(resolve(path), dtype, choose_device(device), model_impl=model_impl, tables=tables)
    return read_network(opened, exact=exact, rounding=rounding)


def read_network(model: OpenedModel, *, exact: bool, rounding: Rounding | None) -> Network:
    """The model with its weights, for decoding only.

    exact: no row's bits depend on the rows beside it (the native kernels' never do).
    rounding: what to round of the model; None, or where it says None: nothing.
    """
    if model.stored is None:
        return _load_adapted(model, exact, rounding)
    stored, config = model.stored, model.stored.config
    quant = None if rounding is None else rounding(config, model.pieces is not None)
    if model.pieces is not None:
        pieces = model.pieces if quant is None else replace(model.pieces, rounding=quant)
        return pieces.pack() if _size(model.path) < packed_cache.SMALLEST else load_native(pieces)
    unknown = find_unknown(config)
    if unknown is not None and stored.dtype == torch.bfloat16 and model.device.type == "cpu" and wanted_kind():
        _log.warning(
            "%s runs through PyTorch, more slowly: the native kernels do not know %s", config.architecture, unknown
        )
    decoder = fill_decoder(stored, model.device)
    if quant is not None:
        decoder = round_decoder(decoder, quant)
    decoder.set_exact(exact)
    return decoder


def _size(path: Path) -> int:
    """Bytes of a model's weight files."""
    files = part_paths(path) if path.is_file() else path.glob("*.safetensors")
    return sum(file.stat().st_size for file in files)


def _load_adapted(model: OpenedModel, exact: bool, rounding: Rounding | None) -> Network:
    """By transformers' own code, which nothing is rounded in."""
    network = load_adapted(model.path, model.dtype, model.device, exact=exact)
    if rounding is not None and rounding(network.config, False) is not None:
        raise CapabilityError(
            f"{model.path.name} runs through transformers, where outdraft rounds no weights: leave the "
            "rounding (precision, quantization) out"
        )
    _log.warning(
        "%s runs through transformers, more slowly than outdraft's own models: %s",
        network.config.architecture,
        "outdraft does not compute this architecture itself"
        if network.config.architecture not in ARCHITECTURES
        else "model_impl='transformers'",
    )
    return network


def check_model_impl(value: str, *, streams: bool = False) -> None:
    """Raise `ConfigError` for a word that is not one of `MODEL_IMPLS`, or that weights read from disk cannot have."""
    if value not in MODEL_IMPLS:
        raise ConfigError(
            f"model_impl={shown(value)} is not known{near_miss(value, list(MODEL_IMPLS))}; "
            f"known: {', '.join(MODEL_IMPLS)}"
        )
    if streams and value == "transformers":
        raise ConfigError(
            "weights_memory is for models that outdraft computes itself, and model_impl='transformers' is given: "
            "leave one out"
        )


def is_adapted(path: Path, model_impl: str) -> bool:
    """Whether this directory or GGUF file is for `transformers`, by `open_model`'s word.

    Raises `ConfigError` for a GGUF file that is asked to be, and `ModelLoadError` for a directory without a readable
    config.json.
    """
    if path.is_file():
        if model_impl == "transformers":
            raise ConfigError(
                f"model_impl='transformers' reads Hugging Face directories, and {path.name} is a GGUF file: leave "
                "model_impl out, or give the directory that it was converted from"
            )
        return False
    if any(path.glob("adapter_*")):
        refuse_lone_adapter(path)
    if model_impl != "auto":
        return model_impl == "transformers"
    raw = read_json(path / "config.json")
    kind = text_kind(raw) if "text_config" in raw else raw.get("model_type")
    return isinstance(kind, str) and kind not in ARCHITECTURES


def find_bound(decoder: Network, asked: float | None) -> float:
    """The guard's bound (`decode/guard.py`): as asked, or what suits the network's type; 0 where rows are exact."""
    if asked is not None and not 0 <= asked < float("inf"):
        raise ConfigError(
            f"guard={asked} is out of range: it must be a difference of two logits, at least 0 (0 is off)"
        )
    if decoder.exact:
        return 0.0
    return DEFAULT_BOUND.get(decoder.dtype, 0.0) if asked is None else asked

"""Load a Hugging Face model directory or a GGUF file into a `Decoder`, and save a decoder as a directory.

Every parameter starts as NaN; whatever the files do not fill, name wrongly or shape wrongly is one clear error.
"""

import json
import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from outdraft.models.families.catalogue import ARCHITECTURES
from outdraft.models.families.shared.fields import all_ends
from outdraft.models.families.shared.naming import EMBEDDING, HEAD, Architecture, Entry, stored_shapes
from outdraft.models.families.shared.rounded_names import stored_entries
from outdraft.models.files.borrowed import BORROWED, TABLES, TargetTables, declaration, with_borrowed
from outdraft.models.files.gguf import GgufModel
from outdraft.models.files.misfit import refuse_misfit
from outdraft.models.files.peft_adapter import WRAPPERS, refuse_lone_adapter, tell_adapter, without_wrapper
from outdraft.models.files.published.settings import BESIDE, settings_beside
from outdraft.models.files.published.source import PublishedModel
from outdraft.models.files.wrapper import text_part, text_tensors
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.config import ModelConfig
from outdraft.models.networks.device import choose_device
from outdraft.nn.quant.config import QUANT_METHOD, read_quant
from outdraft.options.checked import check_value
from outdraft.options.errors import ModelLoadError
from outdraft.options.read_file import load_json
from outdraft.options.shown import shown
from outdraft.weights.hub import resolve
from outdraft.weights.safetensors import SINGLE, TensorStore, save_tensors
from outdraft.weights.source import REAL, TensorSource

_ALSO_CALLED = {"half": "float16", "fp16": "float16", "bf16": "bfloat16", "float": "float32", "fp32": "float32"}
DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in ("float32", "bfloat16", "float16", "float64")}
DTYPES |= {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_log = logging.getLogger(__name__)
_VARIANT = "outdraft_variant"  # in config.json: how weights were rounded, if not by us: a GGUF file's name for it
_STORED = {**REAL, "U8": torch.bfloat16}  # the last: blocks of integers
_INTEGERS = {torch.int8: "I8", torch.uint8: "U8"}


def load_model(
    path: str | Path, dtype: str | torch.dtype | None = None, device: str = "cpu", tables: TargetTables | None = None
) -> Decoder:
    """The model in directory or GGUF file `path` (or of that Hugging Face name), ready to run through PyTorch.

    dtype: a name, or None / "auto" for the type that the weights are stored in (bfloat16 where GGUF rounds them).
    tables: of its target, for a draft that borrows some.
    """
    stored = open_weights(path, dtype, tables)
    decoder = fill_decoder(stored, choose_device(device))
    decoder.set_exact(True)
    return decoder


def fill_decoder(stored: "StoredWeights", device: torch.device) -> Decoder:
    """All of the weights in a decoder. Raises `ModelLoadError`."""
    stored.check_shapes()
    decoder = Decoder(stored.config, stored.dtype, device)
    stored.fill(tensors_of(decoder))
    return decoder.eval().requires_grad_(False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWeights:
    """A model's files, opened: what they hold is known, nothing of it is read, and its shapes are not compared."""

    source: TensorSource
    config: ModelConfig
    dtype: torch.dtype
    entries: tuple[Entry, ...]
    names: Mapping[str, str]  # canonical name -> name in the files
    borrowed: tuple[str, ...] = ()  # tables that are the target's (`borrowed.TABLES`)

    def fill(self, ours: Mapping[str, Tensor]) -> None:
        """Read the tensors of these names (ours); a tied head is not read. Raises `ModelLoadError`."""
        with torch.no_grad():
            for entry in self.entries:
                tied = entry.ours in HEAD and self.config.tie_embeddings
                if entry.ours in ours and not tied:
                    entry.fill(ours[entry.ours], [self.source[self.names[name]] for name in entry.theirs])
        require_filled(ours.items(), self.source.origin)

    def check_shapes(self, ask: Callable[[], Mapping[str, Tensor]] | None = None) -> Mapping[str, Tensor]:
        """Compare what the configuration asks for with what the files hold, before any memory is taken for it.

        `ask`: empty tensors under our names; None: a decoder's. Returns them.
        Raises `ModelLoadError` naming the first tensor that differs.
        """
        try:
            asked = tensors_of(Decoder(self.config, self.dtype, "meta")) if ask is None else ask()
        except (RuntimeError, OverflowError) as error:  # PyTorch cannot count that many elements
            raise ModelLoadError(
                f"the config.json of {self.source.origin} asks for an impossible model ({error})"
            ) from error
        for entry in self.entries:
            self._check(entry, asked[entry.ours])
        return asked

    def _check(self, entry: Entry, target: Tensor) -> None:
        source, theirs = self.source, [self.names[name] for name in entry.theirs]
        for name, shape in zip(theirs, stored_shapes(entry, tuple(target.shape)), strict=True):
            where, told = f"tensor '{name}' in {source.origin}", source.dtype_name(name)
            if source.shape(name) != shape:
                raise ModelLoadError(f"{where} has shape {source.shape(name)}, config.json asks for {shape}")
            if target.is_floating_point() and told not in REAL:
                source.require_real(name)
            elif target.dtype in _INTEGERS and told != _INTEGERS[target.dtype]:
                raise ModelLoadError(
                    f"{where} is {told}, config.json asks for {_INTEGERS[target.dtype]}: quantize the original again"
                )


def open_weights(
    path: str | Path, dtype: str | torch.dtype | None = None, tables: TargetTables | None = None, blocks: bool = False
) -> StoredWeights:
    """As `load_model`; not yet read. `blocks`: those of a GGUF file stay what they are, for decoding only."""
    raw, source = _open(resolve(path), blocks)
    borrowed = raw.pop(BORROWED, None)
    told = raw.pop("quantization_config", None)
    quant = None if told is None or isinstance(source, PublishedModel) else read_quant(told)
    variant = raw.pop(_VARIANT, "")
    kind = find_architecture(raw)
    config = kind.read(raw, strict=True)
    if borrowed is not None:
        source = with_borrowed(source, borrowed, kind.table(config), tables)
    if isinstance(source, GgufModel | PublishedModel):
        quant = source.keep_integers(kind.table(config))
        config = replace(config, quant=quant, variant=source.variant)
    else:
        config = replace(config, quant=quant, variant=str(variant) or (quant.variant if quant is not None else ""))
    if config.tie_embeddings and _has_own_head(source, kind, config):
        config = replace(config, tie_embeddings=False)
    entries = tuple(kind.table(config) if quant is None else stored_entries(kind.table(config), config))
    names = _resolve_names(source, kind, entries, config)
    return StoredWeights(
        source=source,
        config=config,
        dtype=_dtype(dtype, source, names, entries),
        entries=entries,
        names=names,
        borrowed=tuple(borrowed) if isinstance(borrowed, dict) else (),
    )


def require_filled(parameters: Iterable[tuple[str, Tensor]], source: Path) -> None:
    """Raise `ModelLoadError` if any tensor holds NaN, which each is born with.

    It catches what names and shapes cannot: a table that forgot a parameter, a half-written file, a broken checkpoint.
    """
    empty = [
        name
        for name, tensor in parameters
        if tensor.is_floating_point() and tensor.numel() and bool(tensor.amax().isnan())  # in one reading, as NaN wins
    ]
    if empty:
        raise ModelLoadError(
            f"{len(empty)} parameters hold NaN after loading {source}, e.g. {', '.join(empty[:3])}: "
            "the file is damaged, or already was so when it was written; download it again, or take an earlier "
            "checkpoint"
        )


def save_model(
    decoder: Decoder, directory: str | Path, dtype: torch.dtype | None = None, borrowed: Collection[str] = ()
) -> None:
    """Write config.json and model.safetensors as transformers reads them; quantized maps in our own layout.

    `dtype`: of the floats in the file; the decoder's own by default. `borrowed`: tables ("embedding", "head") that are
    its target's: the file is without them.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    config = decoder.config
    kind = ARCHITECTURES[config.architecture]
    ours = tensors_of(decoder)
    tensors: dict[str, Tensor] = {}
    left_out = {TABLES[name] for name in borrowed} | set(HEAD if config.tie_embeddings else ())
    for entry in kind.table(config) if config.quant is None else stored_entries(kind.table(config), config):
        if entry.ours not in left_out:
            tensors |= entry.split(ours[entry.ours].detach())
    stored = dtype or decoder.embedding.dtype
    if stored != decoder.embedding.dtype:
        tensors = {name: one.to(stored) if one.is_floating_point() else one for name, one in tensors.items()}
    written: dict[str, object] = {"architectures": [kind.class_name], "model_type": kind.model_type}
    written |= {"torch_dtype": str(stored).removeprefix("torch."), **kind.write(config)}
    if config.quant is not None:
        written["quantization_config"] = config.quant.to_json()
    if config.variant and not (config.quant is not None and config.variant == config.quant.variant):
        written[_VARIANT] = config.variant
    if borrowed:
        written[BORROWED] = declaration(ours, borrowed)
    (directory / "config.json").write_text(json.dumps(written, indent=2) + "\n")
    save_tensors(tensors, directory / SINGLE)


def tensors_of(decoder: nn.Module) -> dict[str, Tensor]:
    """Everything that a file holds of a decoder or a part of one, under our names: parameters, integers and scales."""
    tensors: dict[str, Tensor] = dict(decoder.named_parameters(remove_duplicate=False))
    buffers = decoder.named_buffers(remove_duplicate=False)
    return tensors | {name: tensor for name, tensor in buffers if not name.endswith(".like")}


def _open(path: Path, blocks: bool) -> tuple[dict[str, object], TensorSource]:
    """The configuration in Hugging Face's words, and the tensors under Hugging Face's names."""
    if path.is_file():
        model = GgufModel(path, blocks=blocks)
        return model.read_config(), model
    adapted = any(path.glob("adapter_*"))
    if adapted:
        refuse_lone_adapter(path)
    raw = read_json(path / "config.json")
    source: TensorSource = TensorStore(path)
    if next(iter(source), "").startswith(WRAPPERS):
        source = without_wrapper(source)
    if adapted:
        tell_adapter(path)
    wraps = isinstance(text := raw.get("text_config"), dict)
    if wraps:
        source = text_tensors(source)
    told = raw.get("quantization_config") or (text.get("quantization_config") if isinstance(text, dict) else None)
    told = told or ((path / BESIDE).exists() and settings_beside(path / BESIDE))
    if told and not (isinstance(told, dict) and told.get("quant_method") == QUANT_METHOD):
        source = PublishedModel(source, told, blocks=blocks)
    if wraps:
        raw = text_part(raw, source)
    if (ends := read_generation(path)) is not None:
        raw = {**raw, "eos_token_id": all_ends(raw.get("eos_token_id"), ends)}
    return raw, source


def find_architecture(raw: dict[str, object]) -> Architecture:
    """The architecture that a config.json names."""
    name = raw.get("model_type")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        known = ", ".join(sorted(ARCHITECTURES))
        raise ModelLoadError(
            f"config.json: model_type={name!r} is not supported here (supported: {known}); whole directories of other "
            "models are decoded through transformers, more slowly (model_impl, docs/models.md)"
        )
    return ARCHITECTURES[name]


def read_json(path: Path) -> dict[str, object]:
    """A JSON object, or a `ModelLoadError` that says what is wrong with the file."""
    try:
        raw = load_json(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ModelLoadError(f"{path.parent} has no {path.name}: is it a model directory?") from error
    except OSError as error:
        raise ModelLoadError(f"{path} cannot be read: {error}") from error
    except ValueError as error:
        raise ModelLoadError(f"{path} is not valid JSON ({error}): download it again") from error
    if not isinstance(raw, dict):
        raise ModelLoadError(f"{path} holds a {type(raw).__name__}, not an object: download it again")
    return raw


def read_generation(directory: Path) -> object:
    """The end-of-text ids of generation_config.json, if there is one: chat models may name the end of a turn there
    alone."""
    path = directory / "generation_config.json"
    return read_json(path).get("eos_token_id") if os.path.lexists(path) else None


def _resolve_names(
    source: TensorSource, kind: Architecture, entries: Iterable[Entry], config: ModelConfig
) -> dict[str, str]:
    """Canonical name -> name in the files; missing and unexpected tensors are errors."""
    names: dict[str, str] = {}
    there = set(source)
    tied = {name for entry in entries if entry.ours in (*HEAD, *EMBEDDING) for name in entry.theirs}
    for entry in entries:
        for name in entry.theirs:
            bare = name.removeprefix(kind.prefix)
            if name in there or bare in there:
                names[name] = name if name in there else bare
    if config.tie_embeddings:  # either of the two may be the one that is stored
        stored = sorted(tied & set(names))
        names.update({name: names[stored[0]] for name in tied - set(names) if stored})
    wanted = [name for entry in entries for name in entry.theirs]
    missing = [name for name in wanted if name not in names]
    unexpected = {name for name in there - set(names.values()) if not name.endswith(kind.ignored)}
    if missing or unexpected:
        refuse_misfit(source.origin, missing, unexpected)
    return names


def _has_own_head(source: TensorSource, kind: Architecture, config: ModelConfig) -> bool:
    """Whether a tied head is stored beside the embeddings with other values, as trainers leave it; a line says so."""
    if isinstance(source, PublishedModel) and config.quant is not None and config.quant.parts_of("lm_head", 0):
        return True
    table = {entry.ours: entry.theirs[0] for entry in kind.table(config)}
    head, rows = (
        next((name for name in (told, told.removeprefix(kind.prefix)) if name in source), "")
        for told in (table["lm_head.weight"], table["embedding"])
    )
    if not head or not rows or head == rows or torch.equal(source[head].float(), source[rows].float()):
        return False
    _log.warning(
        "%s: config.json ties the head to the embeddings, and '%s' is stored with other values: it is used, as "
        "transformers does",
        source.origin.name,
        head,
    )
    return True


def _dtype(
    wanted: str | torch.dtype | None, source: TensorSource, names: dict[str, str], entries: Iterable[Entry]
) -> torch.dtype:
    """The type that is asked for; else the one that the embedding is stored in."""
    named = named_dtype(wanted)
    if named is not None:
        return named
    stored = next(source.dtype_name(names[entry.theirs[0]]) for entry in entries if entry.ours in EMBEDDING)
    if stored not in _STORED:
        raise ModelLoadError(f"{source.origin} stores weights as {stored}, supported: {', '.join(_STORED)}")
    return _STORED[stored]


def named_dtype(wanted: str | torch.dtype | None) -> torch.dtype | None:
    """The type of this name; None for None and "auto". Raises `ModelLoadError` for one that is not known."""
    if isinstance(wanted, torch.dtype):
        if wanted not in DTYPES.values():
            raise ModelLoadError(f"dtype={wanted} is no number format of weights (known: {', '.join(DTYPES)})")
        return wanted
    named: str | None = check_value("dtype", wanted, str | None)
    named = None if named is None else _ALSO_CALLED.get(named, named)
    if named is None or named == "auto":
        return None
    if named not in DTYPES:
        raise ModelLoadError(f"dtype={shown(named)} is not known (known: auto, {', '.join(DTYPES)})")
    return DTYPES[named]

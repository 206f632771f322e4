"""What would run a directory: its config.json, refused by name or understood, and their class for it. No weights.

config.json -> refusals -> transformers -> their configuration and class -> refusals -> `AdapterPlan`
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outdraft.models.adapter.library import first_line, require_transformers
from outdraft.models.adapter.refuse import refuse_class, refuse_config
from outdraft.models.families.shared.fields import all_ends
from outdraft.models.files.foreign_heads import drafter_of, named_kind
from outdraft.models.files.load import read_generation, read_json
from outdraft.models.files.peft_adapter import tell_adapter
from outdraft.models.files.wrapper import is_wrapper, text_kind
from outdraft.options.errors import ModelLoadError
from outdraft.options.read_file import require_file

_CONTEXT = ("max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len", "n_ctx")
_BY_LENGTH = ("longrope", "dynamic")  # rotary frequencies that depend on the longest position of a pass


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterPlan:
    """A model that may be loaded."""

    path: Path
    kind: str  # `model_type` of the language model
    library: Any  # transformers
    config: Any  # theirs, of the language model
    made: Any  # their class
    wrapped: bool  # inside a checkpoint for pictures or sound
    ends: tuple[int, ...]  # ids that end a text
    max_len: int
    cut: str  # the rotary frequencies for which `max_len` is less than config.json says; "": it is not

    @property
    def library_name(self) -> str:
        """Name and version of the package."""
        return f"transformers {self.library.__version__}"


def read_plan(path: Path) -> AdapterPlan:
    """Raises `ModelLoadError` naming what cannot be run and why."""
    raw = read_json(path / "config.json")
    _require_files(path)
    tell_adapter(path)
    kind = text_kind(raw)
    if kind is None:
        raise ModelLoadError(
            f"{path / 'config.json'} names no model_type, as that of a language model does: give the directory of one"
        )
    text: Any = raw["text_config"] if is_wrapper(raw) else raw
    refuse_config(raw, text, kind)
    head = named_kind(raw)
    if head is not None:
        raise ModelLoadError(
            f"{path} holds a draft for the method {drafter_of(head)!r} and no model of its own: name the model that it "
            "was trained for, and give this directory to that method"
        )
    library = require_transformers(kind)
    named, known = f"config.json: model_type={kind!r}", f"transformers {library.__version__}"
    try:
        config = library.AutoConfig.from_pretrained(path, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # transformers raises many kinds; each means the same to us
        if kind in library.CONFIG_MAPPING:
            raise ModelLoadError(f"{named} is not read by {known}: {first_line(error)}") from error
        config = None
    if is_wrapper(raw) and config is not None:
        config = config.get_text_config(decoder=True)
    if type(config) not in library.MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ModelLoadError(f"{named} is not a causal language model that {known} knows, nor one of outdraft's own")
    try:
        made = library.MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    except Exception as error:  # likewise: a package that this model needs may be missing
        raise ModelLoadError(f"{named} cannot be loaded by {known}: {first_line(error)}") from error
    refuse_class(made, kind)
    max_len, cut = _context(config, kind)
    ends = all_ends(raw.get("eos_token_id"), text.get("eos_token_id"), read_generation(path))
    return AdapterPlan(
        path=path,
        kind=kind,
        library=library,
        config=config,
        made=made,
        wrapped=is_wrapper(raw),
        ends=tuple(ends or ()),
        max_len=max_len,
        cut=cut,
    )


def _context(config: Any, kind: str) -> tuple[int, str]:
    """How many tokens a text may have, and the rotary frequencies that make it less than config.json says.

    Where frequencies change with the length of a pass, rows of a cache could belong to either kind: only those before.
    """
    told = next((length for name in _CONTEXT if (length := getattr(config, name, None))), None)
    if told is None:
        raise ModelLoadError(f"config.json of model_type={kind!r} names no context length ({', '.join(_CONTEXT)})")
    rope = getattr(config, "rope_parameters", None) or {}
    for one in (rope, *(value for value in rope.values() if isinstance(value, Mapping))):
        if one.get("rope_type") in _BY_LENGTH:
            first = one.get("original_max_position_embeddings")
            first = first or getattr(config, "original_max_position_embeddings", None) or told
            if first < told:
                return int(first), str(one["rope_type"])
    return int(told), ""


def _require_files(path: Path) -> None:
    """Raise `ModelLoadError` for a pipe or a device, which the library would wait for."""
    for one in sorted((*path.glob("*.json"), *path.glob("*.safetensors"))):
        try:
            require_file(one)
        except OSError as error:
            raise ModelLoadError(f"{path} cannot be read: {error}") from error

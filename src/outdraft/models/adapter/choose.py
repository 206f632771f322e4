"""Which models go through `transformers`: those that outdraft does not compute itself, and any if it is asked for.

The words are vLLM's (`model_impl`): "auto", "outdraft" (ours alone), "transformers" (the adapter alone).
"""

from collections.abc import Mapping
from pathlib import Path

from outdraft.models.families.catalogue import ARCHITECTURES
from outdraft.models.files.load import read_json
from outdraft.models.files.peft_adapter import refuse_lone_adapter
from outdraft.models.files.wrapper import is_wrapper
from outdraft.options.errors import ConfigError
from outdraft.options.near_miss import near_miss
from outdraft.options.shown import shown

MODEL_IMPLS = ("auto", "outdraft", "transformers")


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
    """Whether this directory or GGUF file is for `transformers`.

    Raises `ConfigError` for a GGUF file that is asked to be, and `ModelLoadError` for a directory without a readable
    config.json.
    """
    check_model_impl(model_impl)
    if path.is_file():
        if model_impl == "transformers":
            raise ConfigError(
                f"model_impl='transformers' reads Hugging Face directories, and {path.name} is a GGUF file: leave "
                "model_impl out, or give the directory that it was converted from"
            )
        return False
    refuse_lone_adapter(path)
    if model_impl != "auto":
        return model_impl == "transformers"
    kind = text_kind(read_json(path / "config.json"))
    return kind is not None and kind not in ARCHITECTURES


def text_kind(raw: Mapping[str, object]) -> str | None:
    """The `model_type` of the language model in a config.json; None: there is none."""
    text = raw["text_config"] if is_wrapper(raw) else raw
    assert isinstance(text, Mapping)
    kind = text.get("model_type", f"{raw.get('model_type')}_text" if text is not raw else None)
    return kind if isinstance(kind, str) else None

"""The values of a published `quantization_config`, by name, with an error that names key, value and cure."""

from collections.abc import Mapping
from pathlib import Path

from outdraft.options.errors import ModelLoadError
from outdraft.options.read_file import load_json
from outdraft.options.shown import shown

CURE = "take the unquantized model and run `outdraft quantize` on it, or take a GGUF file"
Told = Mapping[str, object]  # a quantization_config

BESIDE = "hf_quant_config.json"  # where older programs of ModelOpt put them


def settings_beside(path: Path) -> Told:
    """The quantization_config that stands in a file of its own. Raises `ModelLoadError` for a damaged one."""
    try:
        return {"quant_method": "modelopt", **load_json(path)["quantization"]}
    except (ValueError, TypeError, LookupError, OSError) as error:
        raise ModelLoadError(f"{path} has no settings of a quantization ({error!r}): download it again") from error


def refuse(told: Told, key: str, why: str) -> ModelLoadError:
    """The error for a value that is not read."""
    return ModelLoadError(
        f"config.json: quantization_config of quant_method={shown(told.get('quant_method'))} has "
        f"{key}={shown(told.get(key))}, {why}: {CURE}"
    )


def choose(told: Told, keys: tuple[str, ...], known: tuple[object, ...], default: object = None) -> object:
    """The value of the first of these keys that is there. Raises `ModelLoadError` for one that is not known."""
    key = next((one for one in keys if told.get(one) is not None), keys[0])
    value = told.get(key)
    value = default if value is None else value
    if isinstance(value, str):
        value = value.lower()
    if not any(value == one and isinstance(value, type(one)) for one in known):
        raise refuse(told, key, f"which outdraft does not read (it reads {', '.join(map(repr, known))})")
    return value


def group_size_of(told: Told, keys: tuple[str, ...]) -> int:
    """How many inputs share a scale, by the first of these keys that is there; -1: all. Raises `ModelLoadError`."""
    key = next((one for one in keys if told.get(one) is not None), keys[0])
    value = told.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise refuse(told, key, "which is no whole number")
    if value < 1 and value != -1:
        raise refuse(told, keys[0], "which is neither -1 (one group) nor a number of inputs")
    return value

"""vLLM's `speculative_config` dictionary, so that a configuration that users have already written works here.

    {"method": "draft_model", "model": "path", "num_speculative_tokens": 5}
    {"method": "ngram", "prompt_lookup_max": 4, "num_speculative_tokens": 8}
    {"model": "path", "num_speculative_tokens": 3}         the directory says what it is
    {"method": "eagle", "model": "path"}                   a peer's word for what is told apart here

Four keys are the engine's; every other belongs to the chosen drafter, under its option's name or one of its aliases.
Keys of vLLM that mean nothing here are accepted with a line in the log, or refused with the cure (`foreign.py`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outdraft.core.registry import find, names, option_names
from outdraft.engine.naming.combination import Speculation
from outdraft.engine.naming.foreign import EXACT, METHODS, RULES, settle_config
from outdraft.models.files.foreign_heads import drafter_of, recognise
from outdraft.options.checked import check_value
from outdraft.options.errors import ConfigError, ModelLoadError
from outdraft.options.near_miss import near_miss
from outdraft.options.paths import user_path
from outdraft.options.shown import shown
from outdraft.weights.gguf import GgufFile
from outdraft.weights.hub import resolve

_OURS = ("method", "num_speculative_tokens", "rejection_sample_method", "policy")
_NAMING = ("use_heterogeneous_vocab",)  # where true, such a key is a part of the method's name: "name+key"
_DRAWN = {"greedy": "greedy", "probabilistic": "match"}  # draft_sample_method -> the option `sample`


def from_mapping(config: Mapping[str, Any]) -> Speculation:
    """Read the dictionary; unknown keys are refused with the near miss."""
    config = check_value("speculative_config", config, Mapping)
    config = {key: str(value) if isinstance(value, Path) else value for key, value in config.items()}
    name = _meant(config)
    method = find("drafter", name)
    options = {key: value for key, value in config.items() if key not in _OURS}
    known = option_names(method)
    options = settle_config(_drawn(_unnamed(options, name), known), known)
    for key in options:
        if key not in known:
            listed = ", ".join(sorted({*_OURS, *known}))
            raise ConfigError(
                f"unknown key {shown(key)} in speculative_config{near_miss(key, [*_OURS, *known])}; "
                f"with method {method.name!r} it takes: {listed}"
            )
    rule = check_value("rejection_sample_method", config.get("rejection_sample_method", "auto"), str)
    if rule in RULES:
        raise ConfigError(f"speculative_config: rejection_sample_method={rule!r}: {RULES[rule]}")
    return Speculation(
        drafter=name,
        drafter_options=options,
        verifier="auto" if rule in EXACT else rule,
        policy=check_value("policy", config.get("policy"), str | None),
        num_speculative_tokens=check_value("num_speculative_tokens", config.get("num_speculative_tokens"), int | None),
    )


def _meant(config: Mapping[str, Any]) -> str:
    """The drafter: by its name, by a peer's name for it, or by what lies in the directory of its model."""
    word, model = config.get("method"), config.get("model")
    if word is None and model is None:
        raise ConfigError(
            "speculative_config names no 'method': say which drafter (`outdraft methods` lists them), or give the "
            "'model', a directory that says what it is"
        )
    known = names("drafter")
    if isinstance(word, str) and word in METHODS:
        raise ConfigError(f"speculative_config: method={word!r}: {METHODS[word]}")
    word = _full_name(word, model, config)
    others = [name for name in known if word in find("drafter", name).also_called] if isinstance(word, str) else []
    if word is not None and not others:
        return str(check_value("method", word, str))
    lies = _lies_in(model)
    if lies is not None and (word is None or lies in others):
        return lies
    if word in known or len(others) == 1:
        return str(word) if word in known else others[0]
    if word is None:
        raise ConfigError(
            f"speculative_config: {shown(model)} does not say which drafter it is for: name the 'method' "
            "(`outdraft methods`); docs/convert.md lists the drafts that are read"
        )
    raise ConfigError(
        f"method {shown(word)} may be {', '.join(others)} here, and {shown(model)} is none of them: name one"
    )


def _full_name(word: Any, model: Any, config: Mapping[str, Any]) -> Any:
    """The method's name with the keys that are a part of it, where a method is known by both together."""
    named = word if word is not None else _lies_in(model)
    for key in _NAMING:
        whole = f"{named}+{key}"
        if config.get(key) and any(whole in find("drafter", name).also_called for name in names("drafter")):
            return whole
    return word


def _unnamed(options: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Without the keys that have named the method."""
    spent = [key for key in _NAMING if any(called.endswith(f"+{key}") for called in find("drafter", name).also_called)]
    return {key: value for key, value in options.items() if key not in spent}


def _drawn(options: Mapping[str, Any], known: list[str]) -> dict[str, Any]:
    """`draft_sample_method` as the option `sample`; a method that draws nothing ignores it."""
    left = dict(options)
    asked = check_value("draft_sample_method", left.pop("draft_sample_method", None), str | None)
    if asked is None:
        return left
    if asked not in _DRAWN:
        raise ConfigError(f"speculative_config: draft_sample_method={shown(asked)}: it is {' or '.join(_DRAWN)}")
    return {"sample": _DRAWN[asked], **left} if "sample" in known else left


def _lies_in(model: Any) -> str | None:
    """The drafter of what lies in a directory, a GGUF file, or on the hub; None: it is not known.

    Raises `ModelLoadError` for what is not there, and for a GGUF file that is damaged.
    """
    if not isinstance(model, str):
        return None
    if not (place := user_path(model)).exists():
        if model.startswith((".", "/", "~")):
            raise ModelLoadError(f"speculative_config: {shown(model)} does not exist: give the place of a draft")
        place = resolve(model)
    found = recognise(place)
    if found is None and place.is_file():
        GgufFile(place)
    return None if found is None else drafter_of(found[0])

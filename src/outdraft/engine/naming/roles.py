"""Roles: the parts of a recipe that the user must supply, written as "@..." among the options of its drafter.

    model = "@draft_model"       must be filled: LLM(m, recipe=..., draft_model=DIR), or --draft-model DIR
    model = "@draft_model?"      may stay open: then the table in a list that names it is left out, or the option

A role that the user leaves open is filled from `companions.json` in the model's own directory, where its maker may say
which other models belong to it, for all drafters or for one: as paths relative to that directory, or by other names.

    {"draft_model": "../small", "head": {"eagle": "../eagle", "early_exit": "../exit"}}

A role that this file does not name is filled by what lies there (`found_beside.py`): MODEL/draft, MODEL/head.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outdraft.engine.naming.found_beside import Companions, found_beside
from outdraft.options.base import NESTED
from outdraft.options.errors import ConfigError
from outdraft.options.near_miss import near_miss
from outdraft.options.paths import user_path
from outdraft.options.read_file import load_json

ROLES: Mapping[str, str] = {
    "draft_model": "the directory of a smaller model",
    "head": "the directory of a head or network that was trained for this target",
    "datastore": "a file made by `outdraft datastore build`",
}
FILE = "companions.json"
_MARK = "@"
_ANY = "any"
_OPEN = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One place among a recipe's options where a role is named."""

    role: str
    drafter: str  # whose option it is
    optional: bool


def slots_of(drafter: str, options: Any) -> list[Slot]:
    """Every slot among a drafter's options. Raises `ConfigError` for a role that is not known, with the near miss."""
    found: list[Slot] = []

    def note(slot: Slot) -> str:
        found.append(slot)
        return slot.role

    _replace(drafter, options, note)
    return found


def without_optional(drafter: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options as they are when no optional role is filled."""
    made = _replace(drafter, options, lambda slot: _OPEN if slot.optional else _MARK + slot.role)
    return dict(made)


def fill(
    recipe: str,
    drafter: str,
    options: Mapping[str, Any],
    given: Mapping[str, Any],
    companions: Callable[[], Companions],
) -> tuple[dict[str, Any], dict[str, str]]:
    """The options with every role filled, and what fills each. `companions` is asked only if a role is left open.

    Raises `ConfigError` for a role that must be filled and is not, and for one that the recipe does not have.
    """
    slots = slots_of(drafter, options)
    known = sorted({slot.role for slot in slots})
    for role, value in given.items():
        if role not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise ConfigError(f"{role}={value!r} fills a role that recipe {recipe!r} does not have; {has}")
    beside = companions() if any(slot.role not in given for slot in slots) else {}
    told: dict[str, str] = {}

    def put(slot: Slot) -> Any:
        value = choose(slot, given, beside)
        if value is not None:
            told[slot.role] = value
            return value
        if slot.optional:
            return _OPEN
        flag = slot.role.replace("_", "-")
        raise ConfigError(
            f"recipe {recipe!r} leaves the role {slot.role!r} to you: give {slot.role}=..., on the command line "
            f"--{flag} ..., {ROLES[slot.role]}; or name it in {FILE} beside the model (docs/recipes.md)"
        )

    return dict(_replace(drafter, options, put)), told


def choose(slot: Slot, given: Mapping[str, Any], companions: Companions) -> str | None:
    """What fills a slot: what the user gives, else what the model's directory names; None: nothing."""
    beside = companions.get(slot.role, {})
    value = given.get(slot.role, beside.get(slot.drafter, beside.get(_ANY)))
    return None if value is None else str(value)


def read_companions(directory: Path) -> Companions:
    """What the model's own directory names, and what lies there. Raises `ConfigError` for a file that is wrong."""
    named = _named_in(directory / FILE)
    lying = found_beside(directory, unless=frozenset(named))
    return {**lying, **named}


def _named_in(path: Path) -> Companions:
    if not os.path.lexists(path):
        return {}
    try:
        read = load_json(path)
    except (ValueError, OSError) as error:
        raise ConfigError(f"{path} is not readable JSON: {error}") from error
    if not isinstance(read, dict):
        raise ConfigError(f"{path} must hold one JSON object: role to directory")
    found: dict[str, dict[str, str]] = {}
    for role, value in read.items():
        if role not in ROLES:
            raise ConfigError(f"{path}: unknown role {role!r}{near_miss(role, list(ROLES))}; known: {', '.join(ROLES)}")
        named = value if isinstance(value, dict) else {_ANY: value}
        for drafter, place in named.items():
            if not isinstance(place, str) or not place:
                raise ConfigError(f"{path}: {role} of {drafter!r} is {place!r}: it must be the text of a path")
            beside = user_path(path.parent / place).resolve()
            is_path = beside.exists() or place.startswith((".", "/"))
            found.setdefault(role, {})[drafter] = str(beside) if is_path else place
    return found


def _replace(drafter: str, value: Any, by: Callable[[Slot], Any]) -> Any:
    """A copy of `value` with every slot replaced; what names a slot that stays open is left out."""
    if isinstance(value, str):
        return by(_read(drafter, value)) if value.startswith(_MARK) else value
    if isinstance(value, list | tuple):
        parts = [_replace(drafter, one, by) for one in value]
        return [part for part in parts if part is not _OPEN]
    if not isinstance(value, Mapping):
        return value
    inner = value.get(NESTED)
    made = {key: _replace(inner if isinstance(inner, str) else drafter, one, by) for key, one in value.items()}
    if inner is not None and _OPEN in made.values():
        return _OPEN  # a drafter without its model
    return {key: one for key, one in made.items() if one is not _OPEN}


def _read(drafter: str, text: str) -> Slot:
    role = text.removeprefix(_MARK)
    optional = role.endswith("?")
    role = role.removesuffix("?")
    if role not in ROLES:
        raise ConfigError(
            f"{text!r} names no role{near_miss(role, list(ROLES))}; known: {', '.join(_MARK + one for one in ROLES)}; "
            f"a path that begins with {_MARK} is written ./{_MARK}..."
        )
    return Slot(role=role, drafter=drafter, optional=optional)

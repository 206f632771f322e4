"""Roles: the parts of a drafter or a recipe that the user must supply, written as "@..." among the options in a recipe.

    model = "@draft_model"       must be filled: LLM(m, drafter=..., draft_model=DIR), or --draft-model DIR
    model = "@draft_model?"      may stay open: then the table in a list that names it is left out, or the option

A role that the user leaves open is filled from `companions.json` in the model's own directory, where its maker may say
which other models belong to it, for all drafters or for one: as paths relative to that directory, or by other names.

    {"draft_model": "../small", "head": {"eagle": "../eagle", "early_exit": "../exit"}}

A role that this file does not name is filled by what lies there, which is noted in the log `outdraft.notes`:

    MODEL/draft         a smaller model                      fills the role of a draft model
    MODEL/head          a head of any kind that is known     fills the role of a head, for the drafter of its kind
    MODEL/../ANY        a head whose config.json names MODEL as its verifier, as speculators writes it; likewise

A model with a short name (`weights/known.py`) has its drafts in the zoo: zoo/NAME/companions.json.
"""

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outdraft import zoo
from outdraft.core.learner_registry import find_learner
from outdraft.options.base import NESTED
from outdraft.options.errors import ConfigError
from outdraft.options.near_miss import near_miss
from outdraft.options.paths import user_path
from outdraft.options.read_file import load_json

Companions = Mapping[str, Mapping[str, str]]  # role -> drafter, or "any" -> where it is

ROLES: Mapping[str, str] = {
    "draft_model": "the directory of a smaller model",
    "head": "the directory of a head or network that was trained for this target",
    "datastore": "a file made by `outdraft datastore build`",
}
FILE = "companions.json"
_MARK = "@"
_ANY = "any"
_OPEN = object()
_MOST = 64  # neighbours of a model that are looked at
_log = logging.getLogger("outdraft.notes")


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
    if directory.is_file():
        from outdraft.weights.known import name_of  # not before: few models are one file

        known = name_of(directory)
        return {} if known is None else _named_in(zoo.home(known) / FILE)
    named = _named_in(directory / FILE)
    return {**_found_beside(directory, unless=named), **named}


def without_draft_model(companions: Companions) -> Companions:
    """The others: a head makes a draft model beside it superfluous."""
    return {role: named for role, named in companions.items() if role != "draft_model"}


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


def _found_beside(directory: Path, *, unless: Companions) -> Companions:
    """What lies in a model's directory or beside it. `unless`: roles that need nothing."""
    found: dict[str, dict[str, str]] = {}
    if "draft_model" not in unless and (directory / "draft" / "config.json").is_file():
        found["draft_model"] = {"any": str(directory / "draft")}
    if "head" not in unless:
        from outdraft.models.files.foreign_heads import recognise  # not before: it needs torch

        for head in _heads(directory):
            if (known := recognise(head)) is not None:
                drafter = find_learner(known[0]).drafter or known[0]
                found.setdefault("head", {}).setdefault(drafter, str(head))
    for role, named in found.items():
        for drafter, path in named.items():
            whose = "" if drafter == "any" else f" for {drafter}"
            _log.info("found %s%s beside the model: %s", role, whose, path)
    return found


def _heads(directory: Path) -> Iterator[Path]:
    """MODEL/head, then neighbours that name the model."""
    if (directory / "head").is_dir():
        yield directory / "head"
    try:
        neighbours = sorted(directory.parent.iterdir())
    except OSError:
        return
    for one in neighbours[:_MOST]:
        if one != directory and (one / "config.json").is_file() and _names(one, directory):
            yield one


def _names(head: Path, model: Path) -> bool:
    """Whether a head's configuration names this model as its verifier, by its path or by the last part of its name."""
    from outdraft.models.files.foreign_heads import read_config

    told = read_config(head).get("speculators_config")
    verifier = told.get("verifier") if isinstance(told, Mapping) else None
    name = verifier.get("name_or_path") if isinstance(verifier, Mapping) else None
    return isinstance(name, str) and bool(name) and Path(name).name == model.name


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

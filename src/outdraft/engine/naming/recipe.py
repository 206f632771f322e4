"""A recipe: a combination under a paper's name, drafter x shape x verifier x policy, as a TOML file.

    [paper]                  title, year, link; may be left out
    [drafter]                name, and its options under [drafter.options]; "@draft_model" is a role (`roles.py`)
    [verifier]  [policy]     likewise; without them "auto"
    modifies_target = true   the paper trains the target too: lossless then means "as that target"

Data in: a name of the catalogue (a file in `outdraft/recipes`), or the path of a user's own file; data out: a `Recipe`.
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from outdraft.core.method import Paper
from outdraft.core.registry import Kind, find, make_options, names, option_defaults, override
from outdraft.engine.naming.combination import Choice
from outdraft.engine.naming.roles import Companions, Slot, choose, slots_of, without_optional
from outdraft.options.base import NESTED, DraftShape
from outdraft.options.errors import ConfigError
from outdraft.options.near_miss import near_miss
from outdraft.options.paths import user_path
from outdraft.options.read_file import load_toml
from outdraft.options.shown import shown
from outdraft.options.types import fits, in_words

FOLDER = Path(__file__).parents[2] / "recipes"
_PREFIX = "recipe:"  # before the name, where a drafter has the same
_DEFAULTS: dict[Kind, str] = {"drafter": "", "verifier": "auto", "policy": "auto"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What a file says. Names and options are checked when it is read."""

    name: str
    drafter: Choice
    verifier: Choice
    policy: Choice
    paper: Paper | None = None
    modifies_target: bool = False

    @property
    def lossless(self) -> bool:
        """Whether its rule, with its options, keeps the target's distribution: some are lossy on demand."""
        method = find("verifier", self.verifier.name)
        return method.build(make_options(method, self.verifier.options)).lossless

    @property
    def shape(self) -> DraftShape:
        """What its drafter proposes with these options."""
        method = find("drafter", self.drafter.name)
        return method.shape_of(make_options(method, self.drafter.options))

    @property
    def roles(self) -> dict[str, bool]:
        """The roles that its user fills, and whether each must be filled."""
        slots = slots_of(self.drafter.name, self.drafter.options)
        return {slot.role: any(not one.optional for one in slots if one.role == slot.role) for slot in slots}

    def describe(self) -> dict[str, Any]:
        """For the resolved configuration: name, paper, and whether the target is the paper's own."""
        paper = asdict(self.paper) if self.paper else None
        return {"name": self.name, "paper": paper, "modifies_target": self.modifies_target}


def recipe_names() -> list[str]:
    """All recipes that ship with outdraft, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def names_recipe(drafter: str) -> bool:
    """Whether `drafter=` means a recipe: by the prefix "recipe:", as a file, or by a name that no drafter has."""
    if drafter.startswith(_PREFIX) or drafter.endswith(".toml"):
        return True
    return drafter not in names("drafter") and drafter in recipe_names()


def read_recipe(given: str | Path) -> Recipe:
    """The recipe called `given` or "recipe:`given`", or in the file `given` (a path ends with .toml).

    Raises `ConfigError` naming the file, the key and the nearest right one.
    """
    given = str(given).removeprefix(_PREFIX)
    path = user_path(given)
    if path.suffix != ".toml":
        known = recipe_names()
        if given not in known:
            raise ConfigError(
                f"unknown recipe {shown(given)}{near_miss(given, known)}; known: {', '.join(known)}; "
                "a file of your own ends with .toml"
            )
        path = FOLDER / f"{given}.toml"
    try:
        raw = load_toml(path)
    except OSError as error:
        raise ConfigError(f"recipe {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"recipe {path} is no valid TOML: {error}") from error
    _check_keys(raw, [*_DEFAULTS, "paper", "modifies_target"], str(path))
    if not isinstance(raw.get("modifies_target", False), bool):
        raise ConfigError(f"recipe {path}: modifies_target={raw['modifies_target']!r} must be true or false")
    return Recipe(
        name=path.stem,
        paper=_paper(raw, path),
        modifies_target=raw.get("modifies_target", False),
        **{kind: _choice(kind, raw, path) for kind in _DEFAULTS},
    )


def _choice(kind: Kind, raw: Mapping[str, Any], path: Path) -> Choice:
    """One table, its name and options checked."""
    table = raw.get(kind, {"name": _DEFAULTS[kind]})
    where = f"{path}, [{kind}]"
    if not isinstance(table, dict) or not table.get("name"):
        raise ConfigError(f'recipe {where} names no {kind}; write name = "..." (`outdraft methods` lists them)')
    _check_keys(table, ["name", "options"], where)
    choice = Choice(name=table["name"], options=table.get("options", {}))
    try:
        if not isinstance(choice.name, str) or not isinstance(choice.options, dict):
            raise ConfigError(f"[{kind}] holds name={choice.name!r}, options={choice.options!r}: a text and a table")
        method = find(kind, choice.name)
        slots = slots_of(choice.name, choice.options)
        if slots and kind != "drafter":
            raise ConfigError(f"[{kind}.options] names the role {slots[0].role!r}: only a drafter's options have roles")
        make_options(method, choice.options)
        make_options(method, without_optional(choice.name, choice.options))
    except ConfigError as error:
        raise ConfigError(f"recipe {path}: {error}") from error
    return choice


def _paper(raw: Mapping[str, Any], path: Path) -> Paper | None:
    table = raw.get("paper")
    if table is None:
        return None
    where = f"{path}, [paper]"
    if not isinstance(table, dict):
        raise ConfigError(f"recipe {path}: paper={table!r} must be a table with title, year and link")
    needed = [one.name for one in fields(Paper)]
    _check_keys(table, needed, where)
    missing = [name for name in needed if name not in table]
    if missing:
        raise ConfigError(f"recipe {where} lacks {', '.join(missing)}")
    for name, hint in get_type_hints(Paper).items():
        if not fits(table[name], hint):
            raise ConfigError(f"recipe {where}: {name}={table[name]!r} must be {in_words(hint)}")
    return Paper(**table)


def _check_keys(table: Mapping[str, Any], known: list[str], where: str) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(
                f"recipe {where}: unknown key {key!r}{near_miss(key, known)}; it takes: {', '.join(known)}"
            )


def fill_named(
    drafter: str, options: Mapping[str, Any], given: Mapping[str, str], companions: Callable[[], Companions]
) -> dict[str, Any]:
    """The options of a drafter that is named without a recipe, with its roles filled.

    They are filled by what is `given`, else by what `companions` has, else by the option's own default. Which option
    takes which role is written in the recipes that run the drafter; an option that is given is kept. Raises
    `ConfigError` for a role that is given and that the drafter does not have.
    """
    filled, roles = _filled(drafter, options, given, companions)
    for role, value in given.items():
        if role not in roles:
            raise ConfigError(
                f"{role}={value!r} fills a role that drafter {drafter!r} does not have; it has "
                f"{', '.join(sorted(roles)) or 'none'}"
            )
    return filled


def _filled(
    drafter: str, options: Mapping[str, Any], given: Mapping[str, str], companions: Callable[[], Companions]
) -> tuple[dict[str, Any], set[str]]:
    """The options, and the roles that are open in the drafter and in those inside it."""
    method = find("drafter", drafter)
    defaults, slots = option_defaults(method), role_options().get(method.name, {})
    opened = {key: slot for key, slot in override(method, slots, options).items() if isinstance(slot, Slot)}
    roles = {slot.role for slot in opened.values()}
    beside = companions() if roles - given.keys() else {}
    found: dict[str, Any] = {}
    for key, slot in opened.items():
        if (place := choose(slot, given, beside)) is not None:
            found[key] = [place] if isinstance(defaults[key], tuple) else place
    for key, default in defaults.items():
        inner = options.get(key, default)
        if isinstance(inner, Mapping) and isinstance(name := inner.get(NESTED), str):
            own = {option: value for option, value in inner.items() if option != NESTED}
            more, further = _filled(name, own, given, companions)
            roles |= further
            if more != own:
                found[key] = {NESTED: name, **more}
    return {**options, **found}, roles


@cache
def role_options() -> Mapping[str, Mapping[str, Slot]]:
    """Drafter -> option -> its role, from the recipes; options of a drafter inside another are the inner one's."""
    found: dict[str, dict[str, Slot]] = {}
    for path in sorted(FOLDER.glob("*.toml")):
        drafter = tomllib.loads(path.read_text(encoding="utf-8"))["drafter"]
        name = drafter["name"]
        for key, value in drafter.get("options", {}).items():
            plain = isinstance(value, str) or (isinstance(value, list) and all(isinstance(one, str) for one in value))
            if plain and (slots := slots_of(name, value)):
                found.setdefault(name, {})[key] = slots[0]
    return found

"""A drafter that is named without its model takes what lies beside the target, before its own default.

    LLM(model, drafter="draft_model")       MODEL/draft, if it is there, and not the zoo's draft
    LLM(model, drafter="pearl")             the same for the drafter inside
    LLM(model, drafter="medusa")            MODEL/head, if it holds Medusa heads

Which option of a drafter takes which role is written in the recipes that run it. An option that is given is kept.
"""

import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from outdraft.core.registry import find, option_defaults, override
from outdraft.engine.naming.found_beside import Companions
from outdraft.engine.naming.recipe import FOLDER
from outdraft.engine.naming.roles import Slot, choose, slots_of
from outdraft.options.base import NESTED


def fill_named(drafter: str, options: Mapping[str, Any], companions: Callable[[], Companions]) -> dict[str, Any]:
    """The options, and those that take a role and are not given as `companions` has them; it is asked only for such."""
    method = find("drafter", drafter)
    defaults, slots = option_defaults(method), _role_options().get(method.name, {})
    is_open = len(override(method, slots, options)) > len(options)
    beside = companions() if is_open else {}
    found: dict[str, Any] = {}
    for key, slot in slots.items():
        if (place := choose(slot, {}, beside)) is not None:
            found[key] = [place] if isinstance(defaults[key], tuple) else place
    nested: dict[str, Any] = {}
    for key, default in defaults.items():
        inner = options.get(key, default)
        if isinstance(inner, Mapping) and isinstance(name := inner.get(NESTED), str):
            own = {option: value for option, value in inner.items() if option != NESTED}
            if (more := fill_named(name, own, companions)) != own:
                nested[key] = {NESTED: name, **more}
    return {**override(method, found, options), **nested}


@cache
def _role_options() -> Mapping[str, Mapping[str, Slot]]:
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

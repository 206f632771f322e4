"""What a drafter must be given before it drafts for a model of the user's: nothing, or the roles that its recipes name.

Drafters inside a drafter count: `pearl` needs what its inner drafter needs. A role that may stay open is no need.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from outdraft.core.registry import find, names, option_defaults
from outdraft.engine.naming.recipe import role_options
from outdraft.options.base import NESTED

REFERENCES = "references"  # of each request, where others are roles of the engine


def needs_of(drafter: str) -> set[str]:
    """Roles that must be filled (`naming/roles.py`), and `REFERENCES` where it copies from these alone."""
    method = find("drafter", drafter)
    found = {slot.role for slot in role_options().get(method.name, {}).values() if not slot.optional}
    found |= {REFERENCES} if method.quotes_alone else set()
    for value in option_defaults(method).values():
        for inner in _inner(value):
            found |= needs_of(inner)
    return found


def _inner(value: Any) -> Iterator[str]:
    """The drafters that an option's default names: a table, or a list of names and tables."""
    if isinstance(value, Mapping):
        if NESTED in value:
            yield value[NESTED]
    elif isinstance(value, tuple):
        known = names("drafter")
        for one in value:
            yield from [one] if one in known else _inner(one)

"""The key/value caches that a drafter keeps for rows of its own, found by walking through what it holds.

Data in: a drafter, and the target's cache, which it may hold too; data out: the others.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from outdraft.cache.paged import PagedCache


def own_caches(drafter: object, of_target: object) -> list[PagedCache]:
    """Paged caches that the drafter, or what it holds, refers to; `of_target` is not among them."""
    found: list[PagedCache] = []
    seen, todo = {id(of_target)}, [drafter]
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, PagedCache):
            found.append(one)
        else:
            todo += _held(one)
    return found


def _held(one: object) -> Iterator[Any]:
    """What it refers to: the elements of a container, the fields of an object of this project."""
    if isinstance(one, Mapping):
        yield from one.values()
    elif isinstance(one, list | tuple | set):
        yield from one
    elif type(one).__module__.startswith("outdraft") and not isinstance(one, nn.Module):
        yield from getattr(one, "__dict__", {}).values()
        for kind in type(one).__mro__:
            for name in getattr(kind, "__slots__", ()):
                yield getattr(one, name, None)

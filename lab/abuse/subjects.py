"""What is doubled: each way of each field, and each pair, as requests of a given size."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

from lab.abuse import pairs
from lab.abuse.ask import Asked
from lab.abuse.fields import Field, fields
from lab.abuse.places import PLACES
from lab.abuse.ways import BESIDE, settings_of, ways_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """`make`: the request of a size. `texts`: how many texts it asks for.

    `same_as`: a field of another table with the same name, schema and way to grow: one class of ours reads both.
    """

    name: str
    how: str
    sizes: tuple[int, ...]
    make: Callable[[int], Asked]
    texts: Callable[[int], int]
    is_pair: bool = False
    same_as: str = ""


def subjects(openapi: Mapping[str, Any]) -> Iterator[Subject]:
    """Of all fields, then of all pairs."""
    first: dict[tuple[str, str, str], str] = {}
    for field in fields(openapi):
        for one in _of_values(field) if field.values is not None else _of_ways(field):
            other = first.setdefault((field.name, field.schema, one.how), one.name)
            yield one if other == one.name else replace(one, same_as=other)
    for pair in pairs.PAIRS:
        sizes = tuple(1 << i for i in range(pairs.MOST.bit_length()))
        yield Subject(
            name=pair.name, how="both", sizes=sizes, texts=pair.texts, is_pair=True, make=partial(_of_pair, pair)
        )


def _of_pair(pair: pairs.Pair, size: int) -> Asked:
    return Asked.post(pair.path, pair.body(size))


def _of_values(field: Field) -> Iterator[Subject]:
    values, place, beside = field.values or (), PLACES[field.table], BESIDE.get(field.id, {})
    yield Subject(
        name=field.id,
        how="its values",
        sizes=tuple(range(len(values))),
        texts=lambda size: 1,
        make=lambda at: Asked.post(place.path, place.body_with({**beside, field.name: values[at]}, {})),
    )


def _of_ways(field: Field) -> Iterator[Subject]:
    for way in ways_of(field):

        def make(size: int, way: Any = way) -> Asked:
            if field.table.endswith("?"):
                return Asked.get(_address(field, way.make(size)))
            place = PLACES[field.table]
            return Asked.post(place.path, place.body_with(settings_of(field, way, size), way.around))

        yield Subject(name=field.id, how=way.how, sizes=tuple(way.sizes()), make=make, texts=way.texts)


def _address(field: Field, value: Any) -> str:
    path = field.table.removesuffix("?")
    if f"{{{field.name}}}" in path:
        return path.replace(f"{{{field.name}}}", quote(str(value)))
    return f"{path}?{urlencode({field.name: value})}"

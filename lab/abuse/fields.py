"""Every field that a request may have, as /openapi.json lists them.

A field is named by its table and its name, as in `ChatRequest.messages`; what stands in a path or behind it by the
path, as in `/kv_events?since`. A field of finitely many values (true and false, an enumeration) has nothing that could
grow.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_PREFIX = "#/components/schemas/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """`values`: all of them, where they are finitely many; None: its size can grow. `schema`: what it may be."""

    table: str
    name: str
    values: tuple[Any, ...] | None
    schema: str

    @property
    def id(self) -> str:
        return f"{self.table}{'' if self.table.endswith('?') else '.'}{self.name}"


def fields(openapi: Mapping[str, Any]) -> list[Field]:
    """Of all requests, tables within tables too; those of a body first."""
    schemas = openapi["components"]["schemas"]
    tables, found = list(dict.fromkeys(_bodies(openapi))), []
    for table in tables:  # grows while it is walked
        for name, schema in schemas[table].get("properties", {}).items():
            told = json.dumps(schema, sort_keys=True)
            found.append(Field(table=table, name=name, values=_values(schema, schemas), schema=told))
            tables += [one for one in _tables(schema) if one not in tables]
    return [*found, *_asked(openapi)]


def _bodies(openapi: Mapping[str, Any]) -> Iterator[str]:
    for operations in openapi["paths"].values():
        for operation in operations.values():
            content = operation.get("requestBody", {}).get("content", {})
            for kind in content.values():
                yield from _tables(kind["schema"])


def _asked(openapi: Mapping[str, Any]) -> Iterator[Field]:
    for path, operations in openapi["paths"].items():
        for operation in operations.values():
            for one in operation.get("parameters", ()):
                yield Field(table=f"{path}?", name=one["name"], values=None, schema=path)


def _tables(schema: Any) -> Iterator[str]:
    """Names of the tables that a schema refers to."""
    if isinstance(schema, Mapping):
        for key, value in schema.items():
            if key == "$ref":
                yield value.removeprefix(_PREFIX)
            elif key != "discriminator":
                yield from _tables(value)
    elif isinstance(schema, list):
        for one in schema:
            yield from _tables(one)


def _values(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> tuple[Any, ...] | None:
    if "anyOf" in schema:
        parts = [_values(one, schemas) for one in schema["anyOf"]]
        return None if any(one is None for one in parts) else tuple(v for one in parts for v in one or ())
    if "const" in schema:
        return (schema["const"],)
    if "enum" in schema:
        return tuple(schema["enum"])
    if "$ref" in schema and "enum" in (told := schemas[schema["$ref"].removeprefix(_PREFIX)]):
        return tuple(told["enum"])
    return {"boolean": (True, False), "null": (None,)}.get(schema.get("type", ""))

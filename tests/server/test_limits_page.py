"""docs/limits.md has a row for every field of every request; every text, list and table has a limit, or says why not.

The fields are read from the schemas, so that a new one fails here until it has a row and a limit.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from outdraft.options import limits
from tests.server.test_every_field import ENDPOINTS, names, nested

PAGE = (Path(__file__).parents[2] / "docs/limits.md").read_text(encoding="utf-8")
ROWS = [line.strip("| ").split("|") for line in PAGE.splitlines() if line.startswith("| `")]
FIELDS = {name for model, _, _ in ENDPOINTS.values() for name in names(model)} | {
    f"{table}.{name}" for table, model in nested().items() for name in names(model)
}

# Fields of texts, lists and tables that have no limit of their own, by what bounds them.
BOUND = {
    "the context": "prompt token_ids negative_prompt",
    "the context, once they are rendered": "messages input instructions content text name reasoning_content tool_calls "
    "tool_call_id id arguments output summary encrypted_content annotations logprobs parsed parsed_arguments",
    "the context, and security.md": "tools description parameters strict",
    "security.md": "structured_outputs json regex choice grammar whitespace_pattern schema",
    "the template": "chat_template chat_template_kwargs reasoning_effort",
    "the tokens of each text, and of all": "resume_token_ids",
    "a name of tools": "tool_choice",
}
KNOWN = {name for listed in BOUND.values() for name in listed.split()}


def test_every_field_has_one_row() -> None:
    told = [name for row in ROWS for name in re.findall(r"`([\w.]+)`", row[0])]
    assert {*told} == FIELDS
    assert len(told) == len({*told})
    assert all(one.strip() for row in ROWS for one in row[1:3]), "each row says a size and the work"


@pytest.mark.parametrize("name", [name for name in vars(limits) if name.isupper() and name != "PLAIN_ID"])
def test_every_number_is_given(name: str) -> None:
    assert re.search(rf"(?<![\d,]){getattr(limits, name):,}(?![\d,])", PAGE), f"{name} of options/limits.py"


def unbounded(schema: dict[str, Any], definitions: dict[str, Any]) -> Iterator[str]:
    """What of a value's schema has no end: its JSON type."""
    for one in schema.get("anyOf", [schema]):
        if "$ref" in one or "oneOf" in one or "const" in one or "enum" in one:
            continue
        kind = one.get("type")
        limit = {"string": ("maxLength", "pattern"), "array": ("maxItems",), "object": ("maxProperties",)}.get(kind, ())
        if limit and not any(word in one for word in limit):
            yield kind
        if kind == "array":
            yield from unbounded(one["items"], definitions)


MODELS = {**{name: model for name, (model, _, _) in ENDPOINTS.items()}, **nested()}


@pytest.mark.parametrize("place", MODELS)
def test_every_text_list_and_table_has_an_end(place: str) -> None:
    model: type[BaseModel] = MODELS[place]
    schema = model.model_json_schema(by_alias=True)
    found = {
        name: [*unbounded(one, schema.get("$defs", {}))]
        for name, one in schema["properties"].items()
        if name not in KNOWN and name not in ("metadata", "client_metadata")  # which have their size as JSON
    }
    assert not any(found.values()), "give it a limit of options/limits.py, or say in BOUND what bounds it"

"""The page of a method names every option with the default that the code has."""

import json
import re
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from outdraft.core.registry import KINDS, find, names
from outdraft.drafters.shared.blocks.drafter import SlotOptions

PAGES = Path(__file__).parents[2] / "docs/methods"
METHODS = [pytest.param(kind, name, id=f"{kind}-{name}") for kind in KINDS for name in names(kind)]


def given_defaults(page: str) -> dict[str, str]:
    """option -> default, of all tables with these two columns; a row may tell several."""
    told: dict[str, str] = {}
    for table in re.findall(r"\| option \| default \|.*?\n\|[ -|]*\n((?:\|.*\n)+)", page):
        for row in table.splitlines():
            options, defaults = (re.sub(r"\s*\([^)]*\)", "", cell).strip() for cell in re.split(r"(?<!\\)\|", row)[1:3])
            keys = re.findall(r"`([^`]*)`", options)
            values = [defaults] if len(keys) == 1 else re.findall(r"`[^`]*`|[^,`\s][^,`]*", defaults)
            told |= dict(zip(keys, values * len(keys) if len(values) == 1 else values, strict=True))
    return told


def shown(value: object) -> str:
    """A default as pages write it: numbers and tables as in JSON, texts as they are, "none" for nothing."""
    if value is None or value == "":
        return "none"
    if isinstance(value, float) and value == int(value):
        value = int(value)
    return value if isinstance(value, str) else json.dumps(value)


def plain(text: str) -> str:
    return re.sub(r"\.0\b", "", text.strip('`"[] ').replace('"', "").lower())


@pytest.mark.parametrize(("kind", "name"), METHODS)
def test_the_page_tells_every_option_and_its_default(kind, name):
    told = given_defaults((PAGES / f"{name}.md").read_text())
    for one in fields(find(kind, name).options):
        default = one.default if one.default is not MISSING else one.default_factory()
        assert one.name in told, f"docs/methods/{name}.md does not tell of {one.name} = {default!r}"
        assert plain(told[one.name]) == plain(shown(default)), one.name


@pytest.mark.parametrize("name", [name for name in names("drafter") if find("drafter", name).options is SlotOptions])
def test_pages_of_block_networks_say_how_all_of_them_are_rounded(name):
    (row,) = re.findall(r"^\| `quantization` .*", (PAGES / f"{name}.md").read_text(), re.M)
    assert "`auto`: `int4` where the native kernels run the network, `int8` where they run its maps alone" in row

"""docs/survey.md: the systems of a survey, and what each is here. `python -m lab.method_pages` writes it too.

Data in: `survey.toml`, the recipes, the catalogue and what was measured; data out: a page of tables.
"""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from outdraft import zoo
from outdraft.bench.measured import gains, in_words, read_measured
from outdraft.core.registry import names
from outdraft.engine.naming.recipe import read_recipe, recipe_names

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/survey.md"
Row = Mapping[str, str]
PLACES = {"draft_model": "zoo:draft", "head": "DIR", "datastore": "FILE"}
HEAD = """# The survey's systems, and what each is here

Written by `python -m lab.method_pages`; do not edit it. The systems are those of *Speculative Decoding and Beyond: an
in-depth survey of techniques*, 2025, <https://arxiv.org/abs/2502.19732>, and of some other papers. A command runs on
the small models that ship, in whose place yours may be named; `DIR` is a head that `outdraft train` makes, `FILE` a
datastore. Beside the test that is named, every [recipe](recipes.md) passes the same proof
([conformance](conformance.md)). *On {target}* is what the system's drafter gains with the default policy.
"""


def groups() -> list[dict[str, Any]]:
    """The tables, as they are in the file."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["group"]  # type: ignore[no-any-return]


def page() -> str:
    """The text of docs/survey.md."""
    return HEAD.format(target=read_measured()["target"]) + "".join(_tables())


def _tables() -> Iterator[str]:
    for group in groups():
        yield f"\n## {group['title']}\n\n"
        if about := group.get("about"):
            yield f"{about}\n\n"
        yield f"| system | command | test | on {read_measured()['target']} | what differs |\n|{' --- |' * 5}\n"
        for row in group["rows"]:
            link = f"https://arxiv.org/abs/{row.get('arxiv')}"
            name = f"[{row['name']}]({link})" if "arxiv" in row else row["name"]
            line, path = command(row), proof(row)
            said = (
                f"**not here yet**: {row['missing']}" if line is None and "missing" in row else row.get("differs", "")
            )
            cells = [name, f"`{line}`" if line else "", path and f"[{Path(path).stem}](../{path})", measured(row), said]
            yield "|" + "".join(f" {cell} |" if cell else " |" for cell in cells) + "\n"


def command(row: Row) -> str | None:
    """The line that runs a system; None where nothing here does."""
    if "command" in row:
        return row["command"]
    flags = row.get("use")
    if "recipe" in row and row["recipe"] in recipe_names():
        recipe = read_recipe(row["recipe"])
        needed = [role for role, needed in recipe.roles.items() if needed]
        given = [f"--{role.replace('_', '-')} {_place(role, recipe.drafter.name, row)}" for role in needed]
        flags = " ".join([f"--drafter recipe:{row['recipe']}", *given, row.get("more", "")]).strip()
    return None if flags is None else f'outdraft generate "It was late when" {flags} --stats'


def _place(role: str, drafter: str, row: Row) -> str:
    """What fills a role: one of the zoo's, if the zoo has it."""
    if role == "head" and (zoo.path("target").parent / drafter).is_dir():
        return f"zoo:{drafter}"
    return row.get(role, PLACES[role])


def proof(row: Row) -> str:
    """The file of tests: the row's own, else the drafter's; "" where nothing runs."""
    if command(row) is None:
        return ""
    if "test" in row:
        return row["test"]
    return f"tests/drafters/test_{read_recipe(row['recipe']).drafter.name}.py"


def measured(row: Row) -> str:
    """What the system's drafter gains."""
    recipe = row.get("recipe")
    if recipe not in recipe_names():
        return ""
    drafter = read_recipe(str(recipe)).drafter.name
    return in_words(gains(drafter)) if drafter in names("drafter") else ""

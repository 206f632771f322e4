"""docs/survey.md: each named command is understood, each named test exists, and each row says what it is here."""

import re
import shlex

import pytest

from lab import survey
from outdraft.cli.main import make_parser
from outdraft.engine.naming.recipe import read_recipe, recipe_names

ROWS = [row for group in survey.groups() for row in group["rows"]]


@pytest.mark.parametrize("row", ROWS, ids=[row["name"] for row in ROWS])
def test_a_row(row):
    line = survey.command(row)
    assert not set(row) - {*"name arxiv recipe use command more head draft_model test differs missing".split()}
    if line is None:
        gone = row.get("recipe") is not None  # a method that was taken out takes its recipes with it
        assert gone or row["missing"], "it says neither what runs it nor what is lacking"
        return
    assert "missing" not in row and (survey.ROOT / survey.proof(row)).is_file()
    if line.startswith("python examples/"):
        assert (survey.ROOT / line.removeprefix("python ")).is_file()
        return
    given, unknown = make_parser().parse_known_args(shlex.split(line)[1:])
    assert not unknown and given.command
    for recipe in re.findall(r"recipe:(\w+)", line + row.get("differs", "")):
        assert recipe in recipe_names()


def test_every_recipe_of_a_paper_has_a_row():
    """But for our own, and those that are a system's other form, which its row names."""
    said = " ".join(str(row) for row in ROWS)
    published = [name for name in recipe_names() if read_recipe(name).paper is not None]
    lacking = [name for name in published if not re.search(rf"\b{name}\b", said)]
    assert not lacking


def test_what_nothing_runs_is_said():
    (group,) = [group for group in survey.groups() if group["title"] == "Blocks in one pass"]
    table = survey.page().partition(f"## {group['title']}\n")[2].partition("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("|")][2:]
    assert len(lines) == len(group["rows"]) > 3
    for line, row in zip(lines, group["rows"], strict=True):
        is_missing = "missing" in row
        assert row["name"] in line and ("**not here yet**" in line) is is_missing
        assert ("outdraft generate" in line) is not is_missing

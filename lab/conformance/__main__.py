"""`python -m lab.conformance`: run the matrix in a checkout, show progress, write the page.

The rows of the contract suite (tests/contracts/rows) say which tiny models fill the roles of a recipe.
"""

import argparse
import sys
from importlib import import_module
from pathlib import Path

import torch

from lab.conformance.matrix import run_matrix
from lab.conformance.page import write_page
from lab.conformance.record import Record
from outdraft.engine.naming.recipe import read_recipe, recipe_names
from outdraft.options.errors import ConfigError, OutdraftError
from outdraft.testing.spec_table import DrafterRow

PAGE = Path("docs/conformance.md")
RECORD = Path("build/conformance.jsonl")


def main(words: list[str] | None = None) -> int:
    """The exit status: 0 if every check of every recipe holds."""
    parser = argparse.ArgumentParser(prog="python -m lab.conformance", description=__doc__)
    parser.add_argument("recipes", nargs="*", help="only these; the page is then printed, unless --out names a file")
    parser.add_argument("--tests", type=Path, default=Path("tests"), help="the checkout's tests, which hold the rows")
    parser.add_argument("--out", type=Path, help=f"where to write the page: {PAGE} by default")
    parser.add_argument(
        "--record",
        type=Path,
        default=RECORD,
        help=f"finished rows, by all that they depend on; what is there is not run again ({RECORD}); '-': none",
    )
    given = parser.parse_args(words)
    try:
        rows = load_grounds(given.tests)
        recipes = [read_recipe(name) for name in given.recipes or recipe_names()]
    except OutdraftError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    torch.set_num_threads(1)
    kept = None if str(given.record) == "-" else Record(given.record, given.tests)
    lines = run_matrix(recipes, rows, _tell, kept)
    page = write_page(lines)
    if given.recipes and given.out is None:
        sys.stdout.write(page)
    else:
        (given.out or PAGE).write_text(page, encoding="utf-8")
    return 1 if any(line.failures for line in lines) else 0


def load_rows(tests: Path) -> list[DrafterRow]:
    """The contract suite's table. Raises `ConfigError` if it is not there."""
    if not (tests / "contracts/spec_rows.py").exists():
        raise ConfigError(f"{tests} holds no contracts/spec_rows.py: run this in a checkout, or say --tests")
    sys.path.insert(0, str(tests))
    rows: list[DrafterRow] = import_module("contracts.spec_rows").ROWS
    return rows


def load_grounds(tests: Path) -> list[DrafterRow]:
    """The rows on which drafters are mostly right, before those of `load_rows`, which prove the rest."""
    rows = load_rows(tests)
    grounds: list[DrafterRow] = import_module("contracts.spec_rows").GROUNDS
    return [*grounds, *rows]


def _tell(message: str) -> None:
    sys.stderr.write(message + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())

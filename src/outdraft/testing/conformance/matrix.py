"""Run the matrix: recipes x columns -> one `Line` a recipe. A check that raises is a failure with its message."""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from outdraft.core.errors import OutdraftError
from outdraft.engine.recipe import Recipe
from outdraft.testing.conformance.columns import COLUMNS, Bench, count_drafts, make_bench
from outdraft.testing.conformance.stand import RecipeSubject, row_of
from outdraft.testing.spec_table import DrafterRow

PASS, FAIL, LOSSY = "✓", "✗", "lossy"
Tell = Callable[[str], object]


@dataclass(slots=True, kw_only=True)
class Line:
    """One recipe's row of the page."""

    recipe: Recipe
    cells: dict[str, str] = field(default_factory=dict)  # heading -> PASS, FAIL or LOSSY
    failures: list[str] = field(default_factory=list)
    drafted: int = 0
    accepted: int = 0
    seconds: float = 0.0


def run_matrix(recipes: Seq[Recipe], rows: Seq[DrafterRow], tell: Tell = lambda message: None) -> list[Line]:
    """Every recipe in turn; `tell` hears of each as it is done."""
    lines = []
    for number, recipe in enumerate(recipes, 1):
        lines.append(run_line(recipe, rows))
        line = lines[-1]
        told = " ".join(line.cells.get(heading, FAIL) for heading, _, _ in COLUMNS)
        tell(f"{number}/{len(recipes)}  {recipe.name}  {told}  {line.seconds:.1f} s")
        for failure in line.failures:
            tell(f"      {failure}")
    return lines


def run_line(recipe: Recipe, rows: Seq[DrafterRow]) -> Line:
    """All columns of one recipe."""
    line, began = Line(recipe=recipe), perf_counter()
    with TemporaryDirectory() as place:
        try:
            row = row_of(recipe, rows)
            bench = make_bench(
                lambda directory, vocab_size: RecipeSubject(recipe, row, directory, vocab_size=vocab_size), Path(place)
            )
            line.drafted, line.accepted = count_drafts(bench)
        except (OutdraftError, AssertionError) as error:
            line.cells = {heading: FAIL for heading, _, _ in COLUMNS}
            line.failures.append(f"it does not run on a tiny target: {error}")
            return line
        for heading, check, of_lossy in COLUMNS:
            if not bench.lossless and not of_lossy:
                line.cells[heading] = LOSSY
                continue
            problem = _problem(check, bench)
            line.cells[heading] = FAIL if problem else PASS
            line.failures += [f"{heading}: {problem}"] if problem else []
    line.seconds = perf_counter() - began
    return line


def _problem(check: Callable[[Bench], None], bench: Bench) -> str | None:
    try:
        check(bench)
    except Exception as error:  # whatever it is, the other recipes must still be judged
        return f"{type(error).__name__}: {error}"
    return None

"""Run the matrix: recipes x columns -> one `Line` a recipe.

A check that raises is a failure with its message, and so is one that passed without enough guesses, or accepted ones.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Protocol

from lab.conformance.columns import COLUMNS, LEFT_ALONE, VOCABULARIES, Bench, Column, make_bench
from lab.conformance.stand import RecipeSubject, row_of
from lab.conformance.tally import LEAST_ACCEPTED, LEAST_CUT, LEAST_RUNS, Tally
from lab.conformance.trained import trained_row, trained_target
from outdraft.engine.naming.recipe import Recipe
from outdraft.options.errors import OutdraftError
from outdraft.testing.spec_table import DrafterRow

PASS, FAIL, LOSSY = "✓", "✗", "lossy"
Tell = Callable[[str], object]


@dataclass(slots=True, kw_only=True)
class Line:
    """One recipe's row of the page."""

    recipe: Recipe
    cells: dict[str, str] = field(default_factory=dict)  # heading -> PASS, FAIL, LOSSY or LEFT_ALONE
    failures: list[str] = field(default_factory=list)
    seen: dict[str, Tally] = field(default_factory=dict)  # of the cells that must see guesses accepted
    told: dict[str, str] = field(default_factory=dict)  # what checks have to say beside the tick
    trained: bool = False  # whether its texts are the zoo's target's, with a head that was trained for it
    seconds: float = 0.0


class Kept(Protocol):
    """Rows that were finished before (`record.py`)."""

    def find(self, recipe: Recipe) -> Line | None:
        """What it came to; None: it must be run."""

    def keep(self, line: Line) -> None:
        """Write down a finished row, so that an interrupted run goes on behind it."""


def run_matrix(
    recipes: Seq[Recipe], rows: Seq[DrafterRow], tell: Tell = lambda message: None, kept: Kept | None = None
) -> list[Line]:
    """Every recipe in turn, but for those that `kept` has; `tell` hears of each as it is done."""
    lines = []
    for number, recipe in enumerate(recipes, 1):
        found = kept.find(recipe) if kept is not None else None
        line = found or run_line(recipe, rows)
        lines.append(line)
        if found is not None:
            tell(f"{number}/{len(recipes)}  {recipe.name}  as before")
            continue
        if kept is not None:
            kept.keep(line)
        told = " ".join(line.cells.get(column.heading, FAIL) for column in COLUMNS)
        tell(f"{number}/{len(recipes)}  {recipe.name}  {told}  {line.seconds:.1f} s")
        for failure in line.failures:
            tell(f"      {failure}")
    return lines


def run_line(recipe: Recipe, rows: Seq[DrafterRow]) -> Line:
    """All columns of one recipe."""
    line, began = Line(recipe=recipe), perf_counter()
    with TemporaryDirectory() as place:
        try:
            bench = make_bench(_subject(recipe, rows), Path(place))
            line.trained = bench.texts.row.target is trained_target
        except (OutdraftError, AssertionError) as error:
            line.cells = {column.heading: FAIL for column in COLUMNS}
            line.failures.append(f"it does not run on a tiny target: {error}")
            return line
        for column in COLUMNS:
            if not bench.lossless and not column.of_lossy:
                line.cells[column.heading] = LOSSY
                continue
            bench.reset()
            told, problem = _ask(column, bench)
            problem = problem or _lack(column, bench.tally, drafts=recipe.shape != "nothing")
            line.cells[column.heading] = FAIL if problem else LEFT_ALONE if told == LEFT_ALONE else PASS
            line.failures += [f"{column.heading}: {problem}"] if problem else []
            if column.accepts:
                line.seen[column.heading] = bench.tally
            elif told != LEFT_ALONE:
                line.told[column.heading] = told
    line.seconds = perf_counter() - began
    return line


def _subject(recipe: Recipe, rows: Seq[DrafterRow]) -> Callable[[Path, int], RecipeSubject]:
    """Texts are the zoo's target's where it has a trained head for the recipe; all else is a tiny target's."""
    tiny, trained = row_of(recipe, rows), trained_row(recipe)

    def make(directory: Path, vocab_size: int) -> RecipeSubject:
        if trained is None or vocab_size != VOCABULARIES["texts"]:
            return RecipeSubject(recipe, tiny, directory, vocab_size=vocab_size)
        subject = RecipeSubject(recipe, trained, directory)
        subject.vocab_size = subject.decoder.config.vocab_size
        return subject

    return make


def _ask(column: Column, bench: Bench) -> tuple[str, str | None]:
    """What the check has to say, and its problem."""
    try:
        return column.check(bench) or "", None
    except Exception as error:  # whatever it is, the other recipes must still be judged
        return "", f"{type(error).__name__}: {error}"


def _lack(column: Column, seen: Tally, *, drafts: bool) -> str | None:
    """What a check that passed has seen too little of. `drafts`: whether the recipe guesses at all."""
    if drafts and column.accepts and not seen.is_enough:
        return (
            f"{seen.accepted} of {seen.drafted} draft tokens accepted in {seen.runs} commits of two tokens or more, "
            f"and {seen.cut} drafts cut short: it needs {LEAST_ACCEPTED}, {LEAST_RUNS} and {LEAST_CUT} to prove "
            "anything; give the drafter a ground on which it is right, and options under which it is not always right"
        )
    if drafts and column.drafts and not seen.drafted:
        return "nothing was drafted, so it proves nothing"
    return None

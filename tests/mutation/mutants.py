"""The faults that a library's default operators can plant in an area of the source, in a seeded random order.

Library: cosmic-ray (https://github.com/sixty-north/cosmic-ray); default are its operators that need no arguments. Left
out, because nothing that runs depends on them: annotations, and the switches of `@dataclass` (frozen, slots, kw_only).

The order is that of a hash of (seed, the mutant's own words), so that a prefix of it is a uniform random sample, and a
change elsewhere in the source leaves the sample as it is.
"""

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/outdraft"
Span = tuple[tuple[int, int], tuple[int, int]]  # (line, column) to (line, column)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One fault. `key` names it for ever; `occurrence` finds it in the file as it is now."""

    key: str
    file: str  # relative to the package
    line: int
    column: int
    operator: str
    occurrence: int
    text: str  # the line

    def apply(self) -> str:
        """The source with the fault."""
        code = (SOURCE / self.file).read_text("utf-8")
        mutated = mutate_code(code, get_operator(self.operator)(), self.occurrence)
        if mutated is None:
            raise LookupError(f"{self.file} has no place {self.occurrence} for {self.operator}")
        return str(mutated)

    def tell(self) -> dict[str, object]:
        """Plain data."""
        return asdict(self)


def mutants_of(area: str, seed: int) -> list[Mutant]:
    """All of them, in the order in which they are tried."""
    found = [one for path in sorted((SOURCE / area).rglob("*.py")) for one in _mutants_in(path, seed)]
    return sorted(found, key=lambda one: one.key)


def sample(area: str, seed: int, count: int) -> Iterator[Mutant]:
    """The first `count` that are Python at all: a `*` before keyword-only parameters is no product."""
    for mutant in mutants_of(area, seed):
        if not count:
            return
        try:
            ast.parse(mutant.apply())
        except SyntaxError:
            continue
        count -= 1
        yield mutant


def _mutants_in(path: Path, seed: int) -> Iterator[Mutant]:
    code = path.read_text("utf-8")
    nodes, lines, left_out = list(ast_nodes(get_ast(code))), code.splitlines(), list(_left_out(ast.parse(code)))
    file, twins = path.relative_to(SOURCE).as_posix(), Counter[str]()
    for name in operator_names():
        kind = get_operator(name)
        if kind.arguments():
            continue
        operator = kind()
        places = [place for node in nodes for place in operator.mutation_positions(node)]
        for occurrence, (start, _) in enumerate(places):
            if any(first <= tuple(start) < last for first, last in left_out):
                continue
            line, column = start
            words = f"{seed}|{file}|{name}|{lines[line - 1].strip()}|{column}"
            twins[words] += 1
            key = hashlib.sha256(f"{words}|{twins[words]}".encode()).hexdigest()[:16]
            yield Mutant(
                key=key,
                file=file,
                line=line,
                column=column,
                operator=name,
                occurrence=occurrence,
                text=lines[line - 1].strip(),
            )


def _left_out(tree: ast.AST) -> Iterator[Span]:
    """Where annotations and the arguments of `@dataclass` stand."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            yield _span(node.annotation)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            yield _span(node.returns)
        if isinstance(node, ast.ClassDef):
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith("dataclass"):
                    yield _span(decorator)


def _span(node: ast.expr) -> Span:
    assert node.end_lineno is not None and node.end_col_offset is not None
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


def statement_lines(file: str, line: int) -> range:
    """The lines of the smallest statement that `line` belongs to: where one of them runs, the mutated one may."""
    tree = ast.parse((SOURCE / file).read_text("utf-8"))
    around = [
        range(node.lineno, _head_end(node) + 1)
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and node.lineno <= line <= _head_end(node)
    ]
    return min(around, key=len, default=range(line, line + 1))


def _head_end(node: ast.stmt) -> int:
    """The last line of a statement without the statements inside it."""
    body = getattr(node, "body", None)
    end = node.end_lineno or node.lineno
    return max(node.lineno, body[0].lineno - 1) if isinstance(body, list) and body else end

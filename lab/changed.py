"""The tests that a change is near to, by the import graph: `make test-changed`, a few minutes in place of all tests.

    changed files     git's, against the base (main): committed or not, and new ones
    distance          0 a changed test; 1 a test that imports a changed module or has its name; 2 one that imports an
                      importer, or stands in the folder of tests of the same package; and so on
    taken             the nearest MOST files; of the contract table the rows of the drafters that changed, or that
                      import what changed in `drafters/shared`, and those of five sentinels

Methods are found by name and not imported, so the graph ends at the registry: a drafter is near to its own tests alone.
`python -m lab.changed [BASE]` writes pytest's arguments, each ended by a zero byte.
"""

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = "tests/contracts/test_drafters.py"
DRAFTERS = "src/outdraft/drafters/"
MOST = 60  # files of tests
ALWAYS = ("tests/test_architecture.py",)
BESIDE = {  # what is no module of Python, and its tests
    "docs/": (
        *("tests/test_pages.py", "tests/test_plain_words.py"),
        *("tests/contracts/test_option_pages.py", "tests/lab/test_method_pages.py"),
    ),
    "src/outdraft/recipes/": ("tests/contracts/test_recipes.py", "tests/engine/assembly/test_recipe.py"),
    "src/outdraft/kernels/": ("tests/kernels",),
    "README": ("tests/test_pages.py", "tests/test_readme_zh.py"),
}


def changed_files(base: str) -> list[str]:
    """Paths that differ from the last commit that this branch shares with `base`."""

    def git(*words: str) -> list[str]:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    (shared,) = git("merge-base", base, "HEAD")
    return git("diff", "--name-only", shared) + git("ls-files", "--others", "--exclude-standard")


def module_of(path: str) -> str:
    """The name that others import a file by: `src` and `tests` are on the path, tests are also named from the root."""
    parts = path.removesuffix(".py").removesuffix("/__init__").split("/")
    return ".".join(parts[1:] if parts[0] in ("src", "tests") else parts)


def imported(code: str) -> Iterator[str]:
    """Names that may be modules."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def importers(files: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """Path -> paths of the files that import it, of pairs (path, code)."""
    known = dict(files)
    paths = {module_of(path): path for path in known}
    found: dict[str, set[str]] = defaultdict(set)
    for path, code in known.items():
        for name in imported(code):
            if other := paths.get(name.removeprefix("tests.")):
                found[other].add(path)
    return found


def is_test(path: str) -> bool:
    return path.startswith("tests/") and path.rpartition("/")[2].startswith("test_")


def near(changed: Iterable[str], graph: dict[str, set[str]], tests: Iterable[str]) -> dict[str, int]:
    """The distance of each test that is near at all."""
    found: dict[str, int] = {}
    seen, edge = set(changed), set(changed)
    for distance in range(4):
        for path in filter(is_test, edge):
            found.setdefault(path, distance)
        edge = {one for path in edge for one in graph.get(path, ())} - seen
        seen |= edge
    for path in changed:
        if path.startswith("src/outdraft/") and path.endswith(".py"):
            area, *inner = path.removeprefix("src/outdraft/").removesuffix(".py").split("/")
            names = {f"test_{name}" for name in inner[-2:]}
            for test in tests:
                stem = test.rpartition("/")[2].removesuffix(".py")
                if stem in names or any(stem.startswith(f"{name}_") for name in names):
                    found[test] = min(found.get(test, 1), 1)
                elif test.startswith(f"tests/{area}/") and area != "drafters":
                    found[test] = min(found.get(test, 2), 2)
    return found


def drafters(changed: Iterable[str], graph: dict[str, set[str]]) -> set[str]:
    """Names of drafters whose own files, or rows, or what they share, changed."""
    seen = {path for path in changed if path.startswith((DRAFTERS, "tests/contracts/rows/"))}
    edge = set(seen)
    while edge:
        edge = {one for path in edge for one in graph.get(path, ()) if one.startswith(DRAFTERS)} - seen
        seen |= edge
    return {path.removeprefix(DRAFTERS).split("/")[0].removesuffix(".py") for path in seen if DRAFTERS in path} | {
        Path(path).stem for path in seen if DRAFTERS not in path
    }


def cells(names: set[str]) -> list[str]:
    """The contract table's tests of these drafters, and of the sentinels."""
    sys.path.insert(0, str(ROOT / "tests"))
    checks = import_module("contracts.at_once").CHECKS
    sentinels = import_module("contracts.test_drafters").SENTINELS
    named = [row for row in import_module("contracts.spec_rows").ROWS if row.drafter in names or row.name in sentinels]
    rows = [row.name for row in named]
    asked = [f"test_contract[{row}-{check.__name__}]" for row in rows for check in checks]
    return [f"{TABLE}::{test}" for test in asked + [f"test_sampled_distribution[{row}]" for row in rows]]


def arguments(changed: list[str]) -> list[str]:
    """Pytest's, for these changed paths."""
    places = [path for top in ("src", "tests", "lab", "examples") for path in sorted((ROOT / top).rglob("*.py"))]
    files = [(path.relative_to(ROOT).as_posix(), path.read_text("utf-8")) for path in places]
    graph, tests = importers(files), [path for path, _ in files if is_test(path)]
    distances = {path: away for path, away in near(changed, graph, tests).items() if path in tests and path != TABLE}
    areas = {path.split("/")[2] for path in changed if path.startswith("src/outdraft/")}
    taken = sorted(distances, key=lambda path: (distances[path], path.split("/")[1] not in areas, path))[:MOST]
    for place, beside in BESIDE.items():
        if any(path.startswith(place) and not path.endswith(".py") for path in changed):
            taken += beside
    is_code = any(path.startswith(("src/", "tests/contracts/")) for path in changed)
    return [*dict.fromkeys([*ALWAYS, *taken]), *(cells(drafters(changed, graph)) if is_code else ())]


def main() -> None:
    """Write the arguments."""
    base = sys.argv[1] if len(sys.argv) > 1 else "main"
    sys.stdout.write("".join(f"{one}\0" for one in arguments(changed_files(base))))


if __name__ == "__main__":
    main()

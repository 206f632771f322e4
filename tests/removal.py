"""Take one method out of a copy of the tree, and see whether the rest stands: `python tests/removal.py NAME...`

Out go its file or folder, its recipes, its rows, its page and its own tests, and nothing else. Then, in the copy: every
module is imported, the pages' tables are written anew, and the architecture's tests, every recipe and a quick part of
the contract suites of drafters and learners run.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
KEPT = ("src", "tests", "docs", "lab")
PAGES = "tests/lab/test_method_pages.py::test_what_is_written_is_current"
QUICK = "test_contract and texts"
LEARNERS = "what_is_saved_guesses_the_same or how_its_draft_is_used"
IMPORT_ALL = """
import importlib, pkgutil, outdraft
for module in pkgutil.walk_packages(outdraft.__path__, "outdraft."):
    if not any(part in module.name for part in ("__main__", "_native", "triton")):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as missing:  # of an extra that is not installed
            if missing.name.split(".")[0] == "outdraft":
                raise
"""


def copy_tree(directory: Path) -> Path:
    """What a clone would have, weights and the built extension included."""
    skip = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in KEPT:
        shutil.copytree(ROOT / name, directory / name, ignore=skip)
    for path in ROOT.glob("*.*"):
        if path.is_file():
            shutil.copy(path, directory)
    return directory


def remove(tree: Path, name: str) -> list[str]:
    """Delete the method; returns what was deleted, relative to the tree. Raises `ValueError` if there is none."""
    homes = [
        tree / f"src/outdraft/{kind}/{name}{end}" for kind in ("drafters", "verify", "control") for end in ("", ".py")
    ]
    source = next((path for path in homes if path.exists()), None)
    if source is None:
        raise ValueError(f"no method is called {name!r}")
    kind = source.parent.name
    gone = [source, tree / f"docs/methods/{name}.md", tree / f"tests/contracts/rows/{name}.py"]
    tests = tree / "tests" / kind
    gone += [tests / f"test_{name}.py", *tests.glob(f"test_{name}_*.py")]  # not those of a longer name
    gone += [path for path in (tree / "src/outdraft/recipes").glob("*.toml") if f'"{name}"' in path.read_text()]
    gone = [path for path in gone if path.exists()]
    for path in gone:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return [path.relative_to(tree).as_posix() for path in gone]


def check(tree: Path) -> str:
    """Run the proof in the copy; returns what failed, or nothing."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    pytest = ["-m", "pytest", "-p", "no:cacheprovider", "-q"]
    commands = [
        ["-c", IMPORT_ALL],
        ["-m", "lab.method_pages"],
        ["-m", "outdraft.cli.main", "methods", "--json"],
        [*pytest, "tests/test_architecture.py", "tests/test_no_method_names.py", PAGES],
        [*pytest, "tests/contracts/test_recipes.py", "tests/core", "tests/engine/assembly/test_recipe.py"],
        [*pytest, "tests/contracts/test_drafters.py", "-k", QUICK],
        [*pytest, "tests/contracts/test_learners.py", "-k", LEARNERS],
    ]
    for command in commands:
        done = subprocess.run(
            [sys.executable, *command], cwd=tree, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            return f"{' '.join(command)[:200]}\n{done.stdout[-3000:]}{done.stderr[-2000:]}"
    return ""


def main(names: list[str]) -> int:
    """One copy for each name."""
    import tempfile

    failed = 0
    for name in names:
        with tempfile.TemporaryDirectory() as directory:
            tree = copy_tree(Path(directory) / "tree")
            gone = remove(tree, name)
            fault = check(tree)
        failed += bool(fault)
        sys.stdout.write(f"{name}: {', '.join(gone)}\n{'  FAILED ' + fault if fault else '  all else is green'}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

"""docs/add_a_method.md, performed on a copy of the tree: its files, its command, and the suite covers both."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/add_a_method.md").read_text()


def block(kind: str, after: str) -> str:
    """The first fenced block of this kind below a heading."""
    return re.search(rf"```{kind}\n(.*?)```", PAGE[PAGE.index(after) :], re.DOTALL).group(1)


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    """A copy with the page's steps performed."""
    copy = tmp_path_factory.mktemp("tree")
    for name in ("src", "tests", "docs", "lab"):
        skip = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.safetensors")
        shutil.copytree(ROOT / name, copy / name, ignore=skip)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, copy)
    (copy / "src/outdraft/drafters/echo.py").write_text(block("python", "## 1."))
    (copy / "docs/methods/echo.md").write_text(block("markdown", "## 3."))
    (copy / "tests/contracts/rows/echo.py").write_text(block("python", "## 2."))
    (copy / "src/outdraft/drafters/follow.py").write_text(block("python", "## A drafter with state"))
    (copy / "docs/methods/follow.md").write_text("# follow: what followed before\n")
    (copy / "tests/contracts/rows/follow.py").write_text(block("python", "## 2.").replace("echo", "follow"))
    run_in(copy, *block("bash", "## 4.").split()[1:])
    return copy


def run_in(tree: Path, *args: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        [sys.executable, *args], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )


def pytest_in(tree: Path, *args: str) -> str:
    done = run_in(tree, "-m", "pytest", "-p", "no:cacheprovider", *args)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    return done.stdout


def test_three_steps_and_the_suite_covers_it(tree):
    out = pytest_in(tree, "tests/contracts/test_drafters.py", "-k", "echo", "-vv")
    assert "echo-texts" in out and "sampled_distribution" in out and " passed" in out


def test_the_drafter_with_state_keeps_the_contract(tree):
    out = pytest_in(tree, "tests/contracts/test_drafters.py", "-k", "follow and (texts or ends)", "-vv")
    assert "follow-texts" in out and " passed" in out


def suite_of(tree: Path, module: str) -> str:
    """The page's own suite, for the drafter of this module."""
    path = tree / f"tests/test_{module.rpartition('.')[2]}_alone.py"
    path.write_text(block("python", "## Outside this repository").replace("my_package.my_module", module))
    return str(path)


def test_the_suite_of_the_page_runs_on_a_plug_in(tree):
    assert "1 passed" in pytest_in(tree, suite_of(tree, "outdraft.drafters.echo"), "-k", "samples")


@pytest.mark.slow
def test_the_whole_suite_of_the_page_runs_on_a_plug_in(tree):
    assert "2 passed" in pytest_in(tree, suite_of(tree, "outdraft.drafters.echo"))


def test_the_suite_of_the_page_notices_a_wrong_q(tree):
    """The drafter repeats what was there, and says that it drew it from a uniform distribution."""
    source = block("python", "## 1.").replace("from outdraft", "import torch\nfrom outdraft", 1)
    wrong = source.replace("for i in range(size))])", "for i in range(size))], torch.full((size + 1, 7), 1 / 7))")
    assert wrong != source
    (tree / "tests/wrong.py").write_text(wrong.replace('name="echo"', 'name="wrong", contract=3'))
    done = run_in(tree, "-m", "pytest", "-p", "no:cacheprovider", suite_of(tree, "wrong"), "-k", "samples")
    assert done.returncode == 1 and "is q the distribution" in done.stdout


def test_the_catalogue_is_whole(tree):
    pytest_in(
        tree, "tests/test_architecture.py", "tests/test_readme.py", "-k", "catalogue or page or row or docstrings"
    )


def test_a_readme_that_was_not_written_anew_is_noticed(tree):
    kept = (tree / "README.md").read_text()
    try:
        shutil.copy(ROOT / "README.md", tree)
        done = run_in(tree, "-m", "pytest", "-p", "no:cacheprovider", "tests/test_readme.py")
        assert done.returncode == 1 and "run: python tests/test_readme.py" in done.stdout
    finally:
        (tree / "README.md").write_text(kept)


@pytest.mark.parametrize("missing", ["docs/methods/echo.md", "tests/contracts/rows/echo.py"])
def test_a_missing_step_is_noticed(tree, missing, tmp_path):
    path = tree / missing
    kept = path.read_text()
    try:
        path.unlink()
        with pytest.raises(AssertionError, match="echo"):
            pytest_in(tree, "tests/test_architecture.py", "-k", "page or row")
    finally:
        path.write_text(kept)

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


def suite_of(tree: Path, module: str) -> str:
    """The page's own suite, for the drafter of this module."""
    path = tree / f"tests/test_{module.rpartition('.')[2]}_alone.py"
    path.write_text(block("python", "## Outside this repository").replace("my_package.my_module", module))
    return str(path)


CHECKS = (  # of the suite, on both drafters; the whole of it is asked of each drafter of the catalogue
    *(f"test_contract[echo-{name}]" for name in ("texts", "ends", "bits", "crowds", "reuse")),
    *(f"{test}[echo]" for test in ("test_sampled_distribution", "test_the_suite_sees_drafts")),
    *(f"test_contract[follow-{name}]" for name in ("texts", "ends")),
)
CATALOGUE = ("tests/test_architecture.py", "tests/lab/test_method_pages.py")


def test_three_steps_and_the_suite_covers_it(tree):
    """So do those of the catalogue, and the page's suite of a plug-in."""
    suite = suite_of(tree, "outdraft.drafters.echo")
    checks = [f"tests/contracts/test_drafters.py::{check}" for check in CHECKS]
    words = "contracts or (alone and samples) or catalogue or its_page or row or docstrings or current"
    out = pytest_in(tree, *checks, suite, *CATALOGUE, "-k", words, "-vv")
    assert out.count("PASSED") >= len(checks) + 8, out
    assert "samples" in out and "failed" not in out and "skipped" not in out


@pytest.mark.slow
def test_the_whole_suite_of_the_page_runs_on_a_plug_in(tree):
    assert "2 passed" in pytest_in(tree, suite_of(tree, "outdraft.drafters.echo"))


def test_the_suite_of_the_page_notices_a_wrong_q(tree):
    """The drafter repeats what was there, and says that it drew it from a uniform distribution."""
    source = block("python", "## 1.").replace("from outdraft", "import torch\nfrom outdraft", 1)
    wrong = source.replace("for i in range(size))])", "for i in range(size))], torch.full((size + 1, 7), 1 / 7))")
    assert wrong != source
    (tree / "tests/wrong.py").write_text(wrong.replace('name="echo"', 'name="wrong"'))
    done = run_in(tree, "-m", "pytest", "-p", "no:cacheprovider", suite_of(tree, "wrong"), "-k", "samples")
    assert done.returncode == 1 and "is q the distribution" in done.stdout


def test_missing_steps_are_noticed(tree):
    """A page, rows, and a list of methods that was not written anew."""
    files = [tree / name for name in ("docs/methods/echo.md", "tests/contracts/rows/follow.py", "docs/methods.md")]
    kept = [path.read_text() for path in files]
    try:
        for path in files:
            path.unlink()
        shutil.copy(ROOT / "docs/methods.md", tree / "docs")
        done = run_in(tree, "-m", "pytest", "-p", "no:cacheprovider", *CATALOGUE, "-k", "its_page or row or current")
    finally:
        for path, text in zip(files, kept, strict=True):
            path.write_text(text)
    assert done.returncode == 1 and "run: python -m lab.method_pages" in done.stdout
    for missing in (files[0], files[1]):
        assert missing.stem in done.stdout, missing

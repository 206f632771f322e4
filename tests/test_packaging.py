"""What a package says of itself, and the ways to start it. The wheels themselves are built by a workflow, not here."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RELATIVE = re.compile(r"\]\((?!https?:|#)[^)]+\)")


def run(*words: str, **environment: str) -> str:
    """Standard output of a Python process in the repository."""
    told = {**os.environ, **environment}
    return subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=told, capture_output=True, text=True, check=True
    ).stdout


def test_the_module_is_the_command():
    from outdraft import __version__

    assert run("-m", "outdraft", "--version").strip() == f"outdraft {__version__}"


def test_the_version_is_the_same_everywhere():
    from outdraft import __version__

    told = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert told["version"] == __version__
    assert f"version: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_an_index_gets_absolute_links_where_an_address_is_given():
    pytest.importorskip("setuptools", minversion="77")
    shown = run("setup.py", "--quiet", "--long-description", OUTDRAFT_URL="https://example.org/a/b/")
    assert "https://example.org/a/b/blob/HEAD/docs/quickstart.md" in shown and not RELATIVE.search(shown)
    assert "](https://example.org/a/b/raw/HEAD/docs/pictures/" in shown
    assert RELATIVE.search(run("setup.py", "--quiet", "--long-description", OUTDRAFT_URL=""))

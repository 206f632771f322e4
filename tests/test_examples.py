"""Every example runs to its end, and none is longer than a screen; the README's own program runs too."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
ON_RAY = [path for path in EXAMPLES if path.stem.startswith("ray_")]


@pytest.mark.slow
@pytest.mark.parametrize("path", ON_RAY, ids=lambda path: path.stem)
def test_example_on_ray(path):
    pytest.importorskip("ray")
    test_example(path)


@pytest.mark.parametrize("path", [path for path in EXAMPLES if path not in ON_RAY], ids=lambda path: path.stem)
def test_example(path):
    assert len(path.read_text().splitlines()) <= 60
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() and "DIFFERENT" not in done.stdout


def test_readme_program(tmp_path):
    program = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL).group(1)
    (tmp_path / "readme.py").write_text(program)
    done = subprocess.run([sys.executable, tmp_path / "readme.py"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "tokens per pass of the target" in done.stdout

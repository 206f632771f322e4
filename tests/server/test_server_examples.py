"""The examples of examples/server run to their end against a server, and none is longer than a screen."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples/server"
EXAMPLES = sorted([*FOLDER.glob("*.py"), *FOLDER.glob("*.sh")])
NEEDS = {"openai_client.py": "openai", "langchain_chat.py": "langchain_openai"}
SAYS = {"openai_client.py": "the same text", "langchain_chat.py": "JSON: {'city'", "curl.sh": '"text":"yes"'}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example(path: Path, address: str) -> None:
    assert len(path.read_text().splitlines()) <= 60
    if path.name in NEEDS and find_spec(NEEDS[path.name]) is None:
        pytest.skip(f"{NEEDS[path.name]} is not installed")
    if path.suffix == ".sh" and shutil.which("curl") is None:
        pytest.skip("curl is not here")
    where = {"OPENAI_BASE_URL": f"{address}/v1", "OPENAI_API_KEY": "none", "MODEL": "target", "URL": address}
    asked = [sys.executable, path] if path.suffix == ".py" else ["sh", path]
    done = subprocess.run(
        asked, capture_output=True, text=True, timeout=120, env={**os.environ, **where, "NO_PROXY": "127.0.0.1"}
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert "DIFFERENT" not in done.stdout and SAYS[path.name] in done.stdout, done.stdout

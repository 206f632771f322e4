"""One process trains in a folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from outdraft.options.errors import ConfigError
from outdraft.training.alone import alone

HOLD = "import sys\nfrom pathlib import Path\nfrom outdraft.training.alone import alone\n"
HOLD += "with alone(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"


def test_a_second_process_is_refused_until_the_first_has_ended_however_it_ends(tmp_path: Path):
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    first = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "run")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=path
    )
    assert first.stdout is not None and first.stdout.readline() == b"held\n"
    with pytest.raises(ConfigError, match="another process trains in"), alone(tmp_path / "run"):
        pass
    first.kill()
    first.wait()
    with alone(tmp_path / "run"):
        pass

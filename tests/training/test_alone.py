"""One process trains in a folder."""

import os
import subprocess
import sys
from pathlib import Path
from time import time

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


def test_what_a_killed_run_has_left_unfinished_is_removed(tmp_path: Path):
    run, old = tmp_path / "run" / "states", time() - 3600
    run.mkdir(parents=True)
    for name in ("a.npy.part-12-3", "b.npy.part-12-4", "c.npy"):
        (run / name).touch()
    for name in ("a.npy.part-12-3", "c.npy"):
        os.utime(run / name, (old, old))
    with alone(tmp_path / "run"):
        assert {one.name for one in run.iterdir()} == {"b.npy.part-12-4", "c.npy"}

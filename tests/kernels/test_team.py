"""A team whose threads cannot all be started says so, each time anew, and works as soon as they can be."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from outdraft.kernels.library import library

pytestmark = [
    pytest.mark.skipif(library() is None, reason="the native kernels are not built here (no C++ compiler)"),
    pytest.mark.skipif(
        sys.platform != "linux", reason="elsewhere a limit on memory does not keep threads from starting"
    ),
    pytest.mark.skipif("libasan" in os.environ.get("LD_PRELOAD", ""), reason="the sanitizer ends a short process"),
]

HOME = Path(__file__).parent
NATIVE = HOME.parents[1] / "src/outdraft/kernels/native"
COMPILER = shutil.which("c++") or shutil.which("g++")
STACK, ROOM = 64 << 20, 96 << 20  # bytes: room for the stack of one thread, not of three
SCRIPT = f"""
import resource
from pathlib import Path

import torch

from outdraft.kernels.decoder.matrix import PackedMatrix, Weight
from outdraft.kernels.decoder.stack import Stack, StackShape

SIZE = {{name: 32 for name in ("hidden", "head_dim", "inner")}}
held = Stack(StackShape(heads=1, kv_heads=1, vocab=32, rotary=32, eps=1e-5, scale=1.0, **SIZE), 1, threads=4)
matrix = PackedMatrix(Weight(bits=16, values=torch.eye(256).bfloat16()))
x = torch.arange(512.0).view(2, 256) % 256
assert torch.equal(matrix.multiply(x), x)

taken = next(int(line.split()[1]) << 10 for line in Path("/proc/self/status").open() if line.startswith("VmSize"))
resource.setrlimit(resource.RLIMIT_AS, (taken + {ROOM}, resource.RLIM_INFINITY))
for _ in range(3):
    try:
        matrix.multiply(x, threads=4)
    except RuntimeError as error:
        print("refused:", error)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert torch.equal(matrix.multiply(x, threads=4), x)
print("works")
"""


def test_a_thread_that_cannot_be_started_does_not_leave_the_others_waiting():
    """The stack has a team of four that lives on between the products."""
    limited = f"ulimit -Ss {STACK >> 10} && exec {sys.executable} -"
    done = subprocess.run(["bash", "-c", limited], input=SCRIPT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    *refused, last = done.stdout.splitlines()
    assert last == "works" and len(refused) == 3
    assert all(line.startswith("refused: native kernels: ") for line in refused)


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
def test_a_member_that_fails_ends_the_job_and_nothing_else(tmp_path: Path):
    program = tmp_path / "team_race"
    source = [str(HOME / "team_race.cpp"), str(NATIVE / "team.cpp"), f"-I{NATIVE}"]
    subprocess.run([str(COMPILER), *source, "-O0", "-std=c++17", "-pthread", "-o", str(program)], check=True)
    ran = subprocess.run([str(program), "20"], capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr

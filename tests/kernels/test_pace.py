"""How many threads a pass takes is near the best, on simulated machines; and whatever is chosen, bits are the same."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from outdraft.kernels.library import library

HOME = Path(__file__).parent
NATIVE = HOME.parents[1] / "src/outdraft/kernels/native"
COMPILER = shutil.which("c++") or shutil.which("g++")


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
def test_simulated_machines(tmp_path: Path):
    program = tmp_path / "pace_check"
    source = [str(HOME / "pace_check.cpp"), f"-I{NATIVE}", "-O1", "-std=c++17", "-o", str(program)]
    subprocess.run([str(COMPILER), *source], check=True)
    ran = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout


SCRIPT = """
import torch
torch.set_num_threads(3)
from outdraft import LLM, SamplingParams
llm = LLM("zoo:target", drafter="draft_model")
for _ in range(3):
    print(llm.generate("The old man", SamplingParams(max_tokens=80, seed=1, temperature=0.8)).token_ids)
"""


@pytest.mark.skipif(library() is None, reason="the native kernels are not built here (no C++ compiler)")
def test_bits_do_not_depend_on_the_pace():
    texts = set()
    for pace in ("", "off"):
        ran = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "OUTDRAFT_PACE": pace},
            capture_output=True,
            text=True,
            check=True,
        )
        texts |= set(ran.stdout.split("\n")[:-1])
    assert len(texts) == 1


FIXED = """
import os, torch
torch.set_num_threads(3)
from outdraft import LLM, SamplingParams
from outdraft.bench.threads import fixed_threads

def count():
    llm.generate("The old man", SamplingParams(max_tokens=8))
    return len(os.listdir("/proc/self/task"))

llm = LLM("zoo:target", drafter="none")
with fixed_threads(1):
    alone = count()
with fixed_threads(2):
    two = count()
print(two - alone, [count() for _ in range(40)][-1] > two)
"""


@pytest.mark.skipif(library() is None or not Path("/proc/self/task").exists(), reason="needs the kernels, on Linux")
def test_a_number_can_be_fixed_for_a_measurement():
    environment = {key: value for key, value in os.environ.items() if key != "OUTDRAFT_PACE"}
    ran = subprocess.run([sys.executable, "-c", FIXED], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["1", "True"]  # one thread more at two; and, measured again, more than two are tried

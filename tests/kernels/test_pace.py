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
import os, torch
torch.set_num_threads(3)
from outdraft import LLM, SamplingParams
from outdraft.bench.threads import fixed_threads

def text(llm, count):
    params = SamplingParams(max_tokens=count, seed=1, temperature=0.8)
    return llm.generate("The old man", params).token_ids

def threads():
    text(plain, 8)
    return len(os.listdir("/proc/self/task"))

if "OUTDRAFT_PACE" not in os.environ:
    plain = LLM("zoo:target", drafter="none")
    with fixed_threads(1):
        alone = threads()
    with fixed_threads(2):
        two = threads()
    print(two - alone, [threads() for _ in range(3)][-1] > two)
print(text(LLM("zoo:target", drafter="draft_model"), 24))
"""


def printed(**pace: str) -> list[str]:
    """What the script says, whose passes may take three threads, at this pace."""
    environment = {key: value for key, value in os.environ.items() if key != "OUTDRAFT_PACE"} | pace
    ran = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True)
    return ran.stdout.splitlines()


@pytest.mark.skipif(library() is None or not Path("/proc/self/task").exists(), reason="needs the kernels, on Linux")
def test_bits_do_not_depend_on_the_pace_and_a_number_can_be_fixed_for_a_measurement():
    threads, measured = printed()
    assert printed(OUTDRAFT_PACE="off") == [measured]
    assert measured.count(",") == 23
    assert threads.split() == ["1", "True"]  # one thread more at two; and, measured again, more than two are tried

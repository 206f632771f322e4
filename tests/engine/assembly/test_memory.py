"""Free memory as the system's files tell it."""

import ctypes
import re
import sys
from pathlib import Path

import pytest
import torch

from outdraft.engine.assembly.memory import Memory, give_back, read_memory
from outdraft.options.errors import CapabilityError


def write_system(root: Path, *, free_kb: int = 4000, own: str = "0::/app\n", groups: dict[str, dict[str, str]] = {}):  # noqa: B006
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(
        f"MemTotal:  8000 kB\nMemFree:  100 kB\nMemAvailable:  {free_kb} kB\nHugePages_Total: 0\n"
    )
    (root / "proc/self/cgroup").write_text(own)
    for name, files in groups.items():
        folder = root / "sys/fs/cgroup" / name
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (folder / file).write_text(text)


def limit(total: str, used: int, inactive: int = 0) -> dict[str, str]:
    return {
        "memory.max": f"{total}\n",
        "memory.current": f"{used}\n",
        "memory.stat": f"anon 5\ninactive_file {inactive}\n",
    }


def test_the_machines_own(tmp_path):
    write_system(tmp_path)
    assert read_memory(tmp_path) == Memory(free=4000 * 1024, total=8000 * 1024)


def test_a_containers_limit_where_it_is_nearer(tmp_path):
    write_system(tmp_path, groups={"app": limit("1000000", 700000, 50000)})
    assert read_memory(tmp_path) == Memory(free=350000, total=1000000)


def test_no_limit_and_a_limit_that_is_farther_off(tmp_path):
    write_system(tmp_path, groups={"app": limit("max", 700000), "": limit("9000000000", 1)})
    assert read_memory(tmp_path).total == 8000 * 1024


def test_a_limit_of_the_group_above(tmp_path):
    write_system(tmp_path, own="0::/pod/app\n", groups={"pod/app": limit("max", 1), "pod": limit("500000", 500000)})
    assert read_memory(tmp_path) == Memory(free=0, total=500000)


OLD = "9:name=systemd:/\n5:cpu,cpuacct:/pod/app\n4:memory:/pod/app\n0::/\n"
NEVER = 9223372036854771712


def old_limit(total: int, used: int, inactive: int = 0) -> dict[str, str]:
    stat = f"inactive_file 7\ntotal_inactive_file {inactive}\n"
    return {"memory.limit_in_bytes": f"{total}\n", "memory.usage_in_bytes": f"{used}\n", "memory.stat": stat}


@pytest.mark.parametrize(
    ("groups", "memory"),
    [
        ({"memory/pod/app": old_limit(1000000, 700000, 50000)}, Memory(free=350000, total=1000000)),
        (
            {"memory/pod/app": old_limit(NEVER, 700000), "memory/pod": old_limit(500000, 100)},
            Memory(free=499900, total=500000),
        ),
        ({"memory": old_limit(600000, 100)}, Memory(free=599900, total=600000)),  # the path is its host's
        ({"memory/pod/app": old_limit(NEVER, 700000)}, Memory(free=4000 * 1024, total=8000 * 1024)),
    ],
)
def test_limits_of_version_1(tmp_path, groups, memory):
    write_system(tmp_path, own=OLD, groups=groups)
    assert read_memory(tmp_path) == memory


def test_where_nothing_can_be_read(tmp_path):
    with pytest.raises(CapabilityError, match="name a precision"):
        read_memory(tmp_path)


def resident() -> int:
    return int(re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[1]) * 1024


has_trim = sys.platform == "linux" and hasattr(ctypes.CDLL(None), "malloc_trim")


@pytest.mark.skipif(not has_trim, reason="another C library, which gives nothing back on demand")
def test_what_was_freed_goes_back_to_the_system():
    tensors = [torch.ones(16000) for _ in range(2000)]  # 128 MB in pieces that the heap keeps
    last = tensors[-1]
    held = resident()
    tensors.clear()
    give_back()
    assert resident() < held - 64e6
    assert last.sum() == 16000

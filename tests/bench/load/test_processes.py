"""Who is behind a port: the process that listens, and all that it started."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from outdraft.bench.load.processes import find_processes, processor_seconds

LINUX = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads /proc")
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def line(port: int, inode: int, state: str = "0A") -> str:
    rest = "00000000:00000000 00:00000000 00000000     0        0"
    return f"   0: 0100007F:{port:04X} 00000000:0000 {state} {rest} {inode} 1\n"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """5 listens at 8080 and started 6, which started 7; 8 is connected to it; 9 listens elsewhere and started 10."""
    (tmp_path / "net").mkdir()
    (tmp_path / "net/tcp").write_text(HEAD + line(8080, 111) + line(8080, 222, "01") + line(9090, 333))
    parents, sockets = {5: 1, 6: 5, 7: 6, 8: 1, 9: 1, 10: 9}, {5: 111, 8: 222, 9: 333}
    for pid, parent in parents.items():
        (tmp_path / f"{pid}/fd").mkdir(parents=True)
        (tmp_path / f"{pid}/stat").write_text(f"{pid} (a name) 5) S {parent} 0 0")
        if pid in sockets:
            (tmp_path / f"{pid}/fd/3").symlink_to(f"socket:[{sockets[pid]}]")
    return tmp_path


def test_the_listener_and_its_family(proc: Path):
    assert sorted(find_processes("http://127.0.0.1:8080", proc)) == [5, 6, 7]
    assert sorted(find_processes("http://localhost:9090/v1", proc)) == [9, 10]
    assert find_processes("http://127.0.0.1:8081", proc) == []
    assert find_processes("http://elsewhere:8080", proc) == [], "another machine's processes are not here"


def test_nothing_is_known(proc: Path, tmp_path: Path):
    assert find_processes("http://127.0.0.1:8080", tmp_path / "nowhere") == []
    assert processor_seconds([]) is None


@LINUX
def test_a_real_one():
    script = (
        "import socket, sys\ns = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()\n"
        "sum(range(20_000_000))\nprint(s.getsockname()[1], flush=True)\nsys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None and child.stdin is not None
        found = find_processes(f"http://127.0.0.1:{int(child.stdout.readline())}")
        assert found == [child.pid] and os.getpid() not in found
        assert (processor_seconds(found) or 0) > 0
        child.stdin.close()
    assert processor_seconds(found) is None, "it is gone"

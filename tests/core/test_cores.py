"""A quota of processor time is found wherever it is set, and no more threads are started than it keeps busy."""

from pathlib import Path

import pytest

from outdraft.core.cores import count_cores, cpu_quota, useful_threads


def write(root: Path, **files: str) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (root / name.replace("__", ".")).write_text(text + "\n")


@pytest.fixture
def told(tmp_path: Path) -> Path:
    file = tmp_path / "told"
    file.write_text("5:cpu,cpuacct:/service\n0::/user/session\n")
    return file


def test_nothing_limits(tmp_path: Path, told: Path):
    assert cpu_quota(tmp_path / "none", told) is None and cpu_quota(tmp_path, tmp_path / "absent") is None
    write(tmp_path / "user/session", cpu__max="max 100000")
    write(tmp_path / "cpu,cpuacct/service", cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    assert cpu_quota(tmp_path, told) is None


@pytest.mark.parametrize("place", ["user/session", "user", "."])
def test_version_2_and_every_group_above(tmp_path: Path, told: Path, place: str):
    write(tmp_path / place, cpu__max="150000 100000")
    assert cpu_quota(tmp_path, told) == 1.5


@pytest.mark.parametrize("place", ["cpu,cpuacct/service", "cpu/service", "cpu"])
def test_version_1(tmp_path: Path, told: Path, place: str):
    write(tmp_path / place, cpu__cfs_quota_us="50000", cpu__cfs_period_us="100000")
    assert cpu_quota(tmp_path, told) == 0.5


def test_the_least_holds(tmp_path: Path, told: Path):
    write(tmp_path / "user/session", cpu__max="400000 100000")
    write(tmp_path / "user", cpu__max="250000 100000")
    assert cpu_quota(tmp_path, told) == 2.5


def test_threads(tmp_path: Path, told: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert useful_threads(8, tmp_path, told) == 8
    write(tmp_path, cpu__max="150000 100000")
    assert [useful_threads(asked, tmp_path, told) for asked in (1, 2, 8)] == [1, 2, 2]
    write(tmp_path, cpu__max="20000 100000")
    assert useful_threads(8, tmp_path, told) == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    assert useful_threads(8, tmp_path, told) == 8  # a user chose


def test_there_is_a_core():
    assert count_cores() >= 1

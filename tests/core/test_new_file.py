"""A file takes its name when it is whole; no failure leaves anything; devices are not replaced."""

import os
import stat

import pytest

from outdraft.options.errors import ConfigError
from outdraft.options.new_file import new_file


def test_it_takes_its_name_when_it_is_whole(tmp_path):
    path = tmp_path / "made/of/out.bin"
    with new_file(path) as beside:
        beside.write_bytes(b"new")
        beside.chmod(0o600)
        assert not path.exists()
    open(tmp_path / "usual", "w").close()
    assert path.read_bytes() == b"new" and os.listdir(path.parent) == ["out.bin"]
    assert path.stat().st_mode == (tmp_path / "usual").stat().st_mode, "the umask decides, as for `open`"


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), ValueError("x"), OSError(28, "No space left on device")])
def test_a_failure_leaves_what_was_there(tmp_path, failure):
    path = tmp_path / "out.bin"
    path.write_bytes(b"old")
    expected = (ConfigError, "No space left") if isinstance(failure, OSError) else (type(failure), None)
    with pytest.raises(expected[0], match=expected[1]), new_file(path) as beside:
        beside.write_bytes(b"half")
        raise failure
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["out.bin"]


def test_what_is_no_regular_file_stays(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for name in ("pipe", "directory", "link"):
        with pytest.raises(ConfigError, match="no regular file"), new_file(tmp_path / name):
            pass
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    with pytest.raises(ConfigError, match="no regular file"), new_file("/dev/full"):
        pass
    (tmp_path / "target").write_bytes(b"old")
    (tmp_path / "good").symlink_to(tmp_path / "target")
    with new_file(tmp_path / "good") as beside:
        beside.write_bytes(b"new")
    assert (tmp_path / "target").read_bytes() == b"new" and (tmp_path / "good").is_symlink()
